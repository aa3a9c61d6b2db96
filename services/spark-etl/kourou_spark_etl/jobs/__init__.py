"""The computations of the jobs: each module has one pure function over DataFrames."""
