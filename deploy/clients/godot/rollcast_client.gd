# Lets a scene act by a Rollcast gateway, over WebSocket with messages in JSON. For Godot 3; README.md says what differs in Godot 4.
#
# Copy this file into a project. A scene calls `open` once and `exchange` once a step; cartpole.gd shows both.
extends Reference

const PROTOCOL := "rollcast.v1.json"
const OPEN_MSEC := 10000
# Godot's own buffers lose messages above 64 KB in silence. Size in KB and number of messages, of what comes in and of what goes out.
const BUFFERS := [4096, 64, 4096, 64]
# Between two looks for an answer; 0 is faster and keeps a core busy.
const WAIT_USEC := 20

# The reason why the last call failed, one line; empty while all is well.
var error := ""

var _socket: WebSocketClient
var _received := []


# Connects, says hello, and returns the first answer; an empty one if that failed.
#
# url: `ws://HOST:PORT/v1/play`, with the address of `rollcast act clients --web`.
# hello: See Hello in client.proto, in protobuf's JSON: names in lowerCamelCase, int64 as text.
func open(url: String, hello: Dictionary) -> Dictionary:
	error = ""
	_socket = WebSocketClient.new()
	_socket.set_buffers(BUFFERS[0], BUFFERS[1], BUFFERS[2], BUFFERS[3])
	_socket.connect("data_received", self, "_keep_answer")
	_socket.connect("server_close_request", self, "_keep_reason")
	if _socket.connect_to_url(url, PoolStringArray([PROTOCOL])) != OK:
		error = "%s is no address of a WebSocket" % url
		return {}
	var deadline := OS.get_ticks_msec() + OPEN_MSEC
	while _socket.get_connection_status() == NetworkedMultiplayerPeer.CONNECTION_CONNECTING:
		_socket.poll()
		OS.delay_usec(WAIT_USEC)
		if OS.get_ticks_msec() > deadline:
			_socket.disconnect_from_host()
			break
	if not is_open():
		error = "no gateway at %s" % url
		return {}
	_socket.get_peer(1).set_write_mode(WebSocketPeer.WRITE_MODE_TEXT)
	return exchange({"hello": hello})


# Returns whether the connection stands.
func is_open() -> bool:
	return _socket != null and _socket.get_connection_status() == NetworkedMultiplayerPeer.CONNECTION_CONNECTED


# Sends a request and waits for its answer, for as long as the gateway takes; an empty one if the connection broke.
#
# request: See PlayRequest in client.proto. The answer is a PlayResponse, in which fields with their default are absent.
func exchange(request: Dictionary) -> Dictionary:
	error = ""
	_received.clear()
	if is_open() and _socket.get_peer(1).put_packet(JSON.print(request).to_utf8()) != OK:
		error = "the message does not fit into %d KB: send fewer agents in one, or raise BUFFERS" % BUFFERS[2]
		close()
		return {}
	while is_open() and _received.empty():
		_socket.poll()
		if _received.empty():
			OS.delay_usec(WAIT_USEC)
	if _received.empty():
		if error == "":
			error = "the connection broke"
		return {}
	error = ""
	var parsed := JSON.parse(_received[0])
	if parsed.error != OK or not parsed.result is Dictionary:
		error = "the answer is no JSON object"
		close()
		return {}
	return parsed.result


# Answers the gateway's pings while a scene takes no steps.
func poll() -> void:
	if is_open():
		_socket.poll()


# Leaves; the running episodes count as interrupted.
func close() -> void:
	_socket.disconnect_from_host()
	_socket.poll()


# Takes a message when it arrives: Godot drops what waits when the connection closes.
func _keep_answer() -> void:
	_received.append(_socket.get_peer(1).get_packet().get_string_from_utf8())


func _keep_reason(code: int, reason: String) -> void:
	error = "the gateway closed the connection: %d %s" % [code, reason]
