"""`lograft demo`: the events of an imaginary shop, and what Spark pipelines make of them.

`steps.py` runs the steps, `shop.py` generates the events, `shop_pipelines.py` configures the Spark
pipelines, and `requirements.py` checks whether Spark can run on this machine.
"""
