"""`python -m examples.federated`: a user with all of their rows is the unit of privacy.

| module       | holds                                                                  |
|--------------|------------------------------------------------------------------------|
| `federation` | the server: samples users, adds noise, moves the model, counts epsilon |
| `clients`    | what a client computes, and the population of them                     |
| `tree`       | the processes, and what travels between them                           |
| `report`     | docs/federated.md                                                      |
"""
