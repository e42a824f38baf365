"""Reads and writes records as Arrow columns, without a Python object per record. Requires
pyarrow."""
