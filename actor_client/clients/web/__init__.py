"""The door for clients that speak WebSocket or HTTP, pages in browsers among them."""
