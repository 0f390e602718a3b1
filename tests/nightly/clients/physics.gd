# Prints what the cart of cartpole.gd shows after each push: --script physics.gd X SPEED ANGLE TURN PUSH...
extends SceneTree


func _init() -> void:
	var cart = load("res://cartpole.gd").Cart.new()
	var given := Array(OS.get_cmdline_args())
	given = given.slice(given.find("physics.gd") + 1, given.size() - 1)
	for place in 4:
		cart.state[place] = float(given[place])
	for place in range(4, given.size()):
		var told: String = cart.push(given[place] == "1")
		print("%.9f %.9f %.9f %.9f %d" % (cart.state + [int(told == "AGENT_STATE_ENDED")]))
	quit()
