"""A DAY OF A PIPELINE AS A PAGE: what each shipped pipeline's table shows, drawn without Spark.

`drawings` says what is drawn, `day_report` asks the table for it, `charts` draws, `page` writes it
all into one HTML file that needs nothing else. Loading this loads neither Spark nor deltalake.
"""
