"""`make regression`: `experiment` runs the paper's regression in many dimensions, `report` writes its page."""
