"""The programs that the benchmark of handlers compares: each handles so many records and reports.

Arguments: bootstrap, topic, number of records, longest work in milliseconds (0: none), "key" or
"none" for the order that is asked for. Each prints one line of JSON at its end. Work is a sleep of
a random length, the same sequence in each program.
"""
