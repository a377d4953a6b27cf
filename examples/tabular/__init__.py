"""Private training without tuning against tuned competitors, on tables, mails and MNIST.

| module | has |
|---|---|
| `packages` | the archives that hold the data: fetched by name, checked, kept |
| `tables` | the arrays that are read out of them |
| `fresh` | those of problems that the default was not chosen on |
| `fresher`, `further` | those of further ones, which judged changes of the default |
| `problems` | the problems: data, model, batch size, epochs, epsilon |
| `competitors` | DP-SGD and DP-Adam in NumPy: fast enough to be tuned |
| `search` | how they are tuned |
| `default` | `make_private`, with nothing tuned |
| `comparison` | runs it all, a file for every run |
| `imbalance` | rare positives with class weights: what clipping does to them |
| `dollars` | targets in dollars, as they are and scaled privately |
| `study`, `study_warmup` | the default in NumPy, with changes, on held-out parts |
| `study_problems`, `study_table` | the study's problems, and its tables on the page |
| `study_changes`, `study_scales` | what the study changes; the formulas of its second round |
| `words` | what the page says around its tables |
| `report` | docs/tabular.md, its figures and the table of docs/summary.md |
"""
