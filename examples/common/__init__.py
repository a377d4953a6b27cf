"""What several programs share.

| module       | holds                                                                      |
|--------------|----------------------------------------------------------------------------|
| `training`   | one private run from a config: `run`, `run_seeds`, the optimizers by name   |
| `projection` | a private PCA before the model                                              |
| `scaled`     | the same run by `make_private`                                              |
| `models`     | the models that a config can name, their losses and metrics                 |
| `noise_plan` | the noise multipliers that meet a config's epsilon                          |
| `strategies` | replicas and workers by name                                                |
| `config_flags` | what is said to a config field that there is not                          |
| `workdirs`   | the folder of a run, and whether it may be resumed                          |
| `data`, `idx`| data sets by name, wherever they are to be had                              |
| `figures`    | figures that go into files                                                  |
"""
