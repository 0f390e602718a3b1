# Plays CartPole for a Rollcast gateway: the carts of a scene that act by RollcastClient. Run with
#
#     godot3-server --path . --address=127.0.0.1:50053 --carts=8
extends Node

const RollcastClient := preload("res://rollcast_client.gd")
const HELLO := {
	"name": "godot",
	"behaviors": [{
		"name": "CartPole",
		"observations": [{
			"name": "obs", "dtype": "DTYPE_FLOAT32", "shape": ["4"], "kind": "OBSERVATION_KIND_VECTOR",
		}],
		"action": {"discreteBranches": [2]},
	}],
}
const RETRY_MSEC := 1000


# A cart with a pole, with the equations and constants of Gymnasium's CartPole-v1.
class Cart:
	const GRAVITY := 9.8
	const CART_MASS := 1.0
	const POLE_MASS := 0.1
	const FORCE := 10.0
	const TICK_SECONDS := 0.02
	const POSITION_LIMIT := 2.4
	const ANGLE_LIMIT := 12.0 * 2.0 * PI / 360.0
	const STEP_LIMIT := 500

	var state := [0.0, 0.0, 0.0, 0.0]
	var steps := 0
	var half_length := 0.5

	# Starts an episode with the pole almost upright. `half_length`, an environment parameter of the run file, is that of the pole, in m.
	func begin(draws: RandomNumberGenerator, parameters: Dictionary) -> void:
		half_length = parameters.get("half_length", 0.5)
		for index in 4:
			state[index] = draws.randf_range(-0.05, 0.05)
		steps = 0

	# Takes one step of Euler's method, and returns whether the episode continues.
	func push(to_the_right: bool) -> String:
		var sine := sin(state[2])
		var cosine := cos(state[2])
		var mass := CART_MASS + POLE_MASS
		var moment := POLE_MASS * half_length
		var force := FORCE if to_the_right else -FORCE
		var pushed: float = (force + moment * state[3] * state[3] * sine) / mass
		var angle_acc := (GRAVITY * sine - cosine * pushed) / (half_length * (4.0 / 3.0 - POLE_MASS * cosine * cosine / mass))
		var x_acc := pushed - moment * angle_acc * cosine / mass
		state[0] += TICK_SECONDS * state[1]
		state[1] += TICK_SECONDS * x_acc
		state[2] += TICK_SECONDS * state[3]
		state[3] += TICK_SECONDS * angle_acc
		steps += 1
		if abs(state[0]) > POSITION_LIMIT or abs(state[2]) > ANGLE_LIMIT:
			return "AGENT_STATE_ENDED"
		return "AGENT_STATE_UNSPECIFIED" if steps < STEP_LIMIT else "AGENT_STATE_INTERRUPTED"


var _client := RollcastClient.new()
var _url := "ws://127.0.0.1:50053/v1/play"
var _draws := RandomNumberGenerator.new()
var _carts := []
var _parameters := {}
var _answer := {}
var _is_new := true
var _count := 0
var _retry_at := 0


func _ready() -> void:
	OS.low_processor_usage_mode_sleep_usec = 0  # else a server sleeps between two frames: 145 steps a second
	var count := 8
	for argument in OS.get_cmdline_args():
		if argument.begins_with("--address="):
			var address: String = argument.trim_prefix("--address=")
			_url = address if "://" in address else "ws://%s/v1/play" % address
		elif argument.begins_with("--carts="):
			count = int(argument.trim_prefix("--carts="))
	for _number in count:
		_carts.append(Cart.new())


# Takes one step of every cart a frame; connects again while the gateway is away.
func _process(_delta: float) -> void:
	if not _client.is_open():
		if OS.get_ticks_msec() < _retry_at:
			OS.delay_msec(10)
			return
		var hello := HELLO.duplicate(true)
		hello["token"] = OS.get_environment("ROLLCAST_TOKEN")
		_answer = _client.open(_url, hello)
		_draws.seed = int(_answer.get("environment", {}).get("seed", 0))
		_is_new = true
		_count = 0
	else:
		var request := _next_message()
		_is_new = false
		_answer = _client.exchange(request)
	if _answer.has("goodbye"):
		print("goodbye after %d steps: %s" % [_count, _answer["goodbye"]])
		_client.close()
		get_tree().quit(0 if _count > 0 else 1)  # without a step it was refused
		set_process(false)
	elif _client.error != "":
		printerr(_client.error)
		_retry_at = OS.get_ticks_msec() + RETRY_MSEC


# Pushes the carts that have an action, and returns the message with what all of them observe then.
func _next_message() -> Dictionary:
	if _answer.has("environment"):
		_parameters = _answer["environment"].get("parameters", {})
	var steps := {"behavior": "CartPole", "agents": [], "values": [], "rewards": [], "states": []}
	if _is_new or _answer.get("reset", false):  # the gateway wants new episodes of all agents
		for number in _carts.size():
			_begin(steps, number)
	for actions in _answer.get("actions", []):
		for index in actions["agents"].size():
			var number := int(actions["agents"][index])
			var state: String = _carts[number].push(actions["discrete"][index] == 1)
			_count += 1
			_report(steps, number, 1.0, state)
			if state != "AGENT_STATE_UNSPECIFIED":  # the next episode begins in the same message
				_begin(steps, number)
	return {"steps": [steps]}


func _begin(steps: Dictionary, number: int) -> void:
	_carts[number].begin(_draws, _parameters)
	_report(steps, number, 0.0, "AGENT_STATE_UNSPECIFIED")


func _report(steps: Dictionary, number: int, reward: float, state: String) -> void:
	steps["agents"].append(number)
	for value in _carts[number].state:
		steps["values"].append(value)
	steps["rewards"].append(reward)
	steps["states"].append(state)
