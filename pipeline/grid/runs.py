from contextlib import contextmanager
def open_grid(uri, config, name, initial): return None
@contextmanager
def tracked(parent, live): yield
def log_trial(parent, trial, result): pass
def log_table(parent, text, rows): pass
def log_best(*a): pass
