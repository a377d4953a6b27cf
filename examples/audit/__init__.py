"""`python -m examples.audit`: `experiment` and `whole_runs` attack what `grid` lists, `report` writes docs/audit.md."""
