the server
