"""Two modules with a session each. Closing one does not touch the other."""

from session_modules import prices, weights

print("prices:", prices.total([1.0, 2.0]))
print("weights:", weights.total([3.0, 4.0]))
prices.close()
print("weights, still:", weights.total([5.0]))
weights.close()
print("both clean:", prices.session.receipt.clean and weights.session.receipt.clean)
