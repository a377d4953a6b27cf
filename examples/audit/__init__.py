"""`python -m examples.audit`: `experiment` attacks real training runs, `report` writes docs/audit.md."""
