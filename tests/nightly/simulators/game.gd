# CartPole for the engine itself, in the protocol of the Godot RL Agents plug-in: godot3-server -s game.gd --port=N --env_seed=N.
extends SceneTree

const AGENTS = 4
const LIMIT = 12 * PI / 180

var stream = StreamPeerTCP.new()
var numbers = RandomNumberGenerator.new()
var states = []
var steps = []


func _initialize():
	var given = {}
	for word in OS.get_cmdline_args():
		var parts = word.lstrip("-").split("=")
		given[parts[0]] = parts[1] if parts.size() > 1 else ""
	numbers.seed = int(given.get("env_seed", "1"))
	for agent in range(AGENTS):
		states.append([])
		steps.append(0)
	if stream.connect_to_host("127.0.0.1", int(given.get("port", "11008"))) == OK:
		while stream.get_status() == StreamPeerTCP.STATUS_CONNECTING:
			OS.delay_msec(1)
		if stream.get_status() == StreamPeerTCP.STATUS_CONNECTED:
			stream.set_no_delay(true)
			play()
	quit()


func play():
	receive()  # the handshake
	receive()
	var sees = []
	var does = []
	var names = []
	for agent in range(AGENTS):
		sees.append({"obs": {"size": [4], "space": "box"}})
		does.append({"push": {"size": 2, "action_type": "discrete"}})
		names.append("shared_policy")
	send({"type": "env_info", "observation_space": sees, "action_space": does, "n_agents": AGENTS, "agent_policy_names": names})
	while true:
		var message = receive()
		if message == null or message["type"] == "close":
			return
		if message["type"] == "reset":
			for agent in range(AGENTS):
				begin(agent)
			send({"type": "reset", "obs": observations()})
		else:
			step(message["action"])


func begin(agent):
	steps[agent] = 0
	states[agent] = []
	for _axis in range(4):
		states[agent].append(numbers.randf_range(-0.05, 0.05))


func step(actions):
	var rewards = []
	var done = []
	for agent in range(AGENTS):
		rewards.append(1.0)
		done.append(move(agent, int(actions[agent]["push"])))
	send({"type": "step", "obs": observations(), "reward": rewards, "done": done})


func move(agent, push):
	var s = states[agent]
	var force = 10.0 if push == 1 else -10.0
	var total = (force + 0.05 * s[3] * s[3] * sin(s[2])) / 1.1
	var theta_acc = (9.8 * sin(s[2]) - cos(s[2]) * total) / (0.5 * (4.0 / 3.0 - 0.1 * cos(s[2]) * cos(s[2]) / 1.1))
	var x_acc = total - 0.05 * theta_acc * cos(s[2]) / 1.1
	states[agent] = [s[0] + 0.02 * s[1], s[1] + 0.02 * x_acc, s[2] + 0.02 * s[3], s[3] + 0.02 * theta_acc]
	steps[agent] += 1
	var over = abs(states[agent][0]) > 2.4 or abs(states[agent][2]) > LIMIT or steps[agent] >= 500
	if over:
		begin(agent)
	return over


func observations():
	var found = []
	for agent in range(AGENTS):
		found.append({"obs": states[agent]})
	return found


func receive():
	while stream.get_available_bytes() == 0:
		if stream.get_status() != StreamPeerTCP.STATUS_CONNECTED:
			return null
		OS.delay_usec(10)
	return JSON.parse(stream.get_string()).result


func send(message):
	stream.put_string(to_json(message))
