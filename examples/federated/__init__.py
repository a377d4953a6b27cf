"""`python -m examples.federated`: private federated training on Flower, a client with all of its rows as the unit.

| module       | holds                                                                  |
|--------------|------------------------------------------------------------------------|
| `comparison` | AdaCliP, a fixed and a quantile clip at the same epsilon per client    |
| `clients`    | what a client holds and computes: a Flower `ClientApp`                 |
| `grid`       | a Flower grid in one process, for thousands of clients                 |
| `simulation` | Flower's simulation engine, where clients take turns on Ray's workers   |
| `report`     | docs/federated.md, with the words of `page`                            |
| `processes`  | a program of its own: SuperLink and SuperNodes as processes, which run |
| `app`        | a Flower app                                                           |
"""

import os
import secrets

# Before Flower and Ray are imported, which look once. Neither tells anyone that they are used, or asks for news.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# Ray's processes listen on all addresses and run what they are sent: from this process and its own alone.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
