"""Records as Arrow columns, in and out, without a Python object per record. Needs pyarrow."""
