"""`python -m examples.federated`: private federated training on Flower, a client with all of its rows as the unit.

| module       | holds                                                                  |
|--------------|------------------------------------------------------------------------|
| `comparison` | AdaCliP, a fixed and a quantile clip at the same epsilon per client    |
| `clients`    | what a client holds and computes: a Flower `ClientApp`                 |
| `grid`       | a Flower grid in one process, for thousands of clients                 |
| `report`     | docs/federated.md, with the words of `page`                            |
| `processes`  | a program of its own: SuperLink and SuperNodes as processes, which run |
| `app`        | a Flower app                                                           |
"""
