"""What every room needs and no user sees: checks of arguments, files, versions. Imports nothing of the library."""
