"""Closes what model.py opened."""

import model
import settings
from model import imported, left, listed, predict, start

start()
predict("x:0")
left.run("x:0")
imported.close()
model.by_the_module.close()
model.made_later.close()
for session in listed:
    session.close()
settings.stop()
