"""The HTTP server over a Predictor: app.py has the routes, queue.py and batcher.py the way to the model, page/ the page."""
