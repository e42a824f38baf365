"""`lograft demo`: an invented shop, from its first order to tables, figures and a report on Spark.

`steps.py` runs the steps, `shop.py` invents the events, `shop_pipelines.py` has the pipelines on
Spark, `requirements.py` finds out whether Spark can run here.
"""
