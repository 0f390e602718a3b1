"""Acts for clients: simulators in any language that hold no policy and send what their agents observe."""
