"""`python -m examples.audit`: `experiment` and `whole_runs` attack, `report` writes docs/audit.md."""
