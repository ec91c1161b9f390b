"""Other libraries have sessions too. Nothing is reported."""

import aiohttp
import requests
from sqlalchemy.orm import Session


class InteractiveSession:
    def run(self, what):
        return what


def elsewhere(engine):
    http = requests.Session()
    http.get("http://localhost")
    database = Session(engine)
    database.execute("select 1")
    own = InteractiveSession()
    print(own.run(1))
    return aiohttp.ClientSession()
