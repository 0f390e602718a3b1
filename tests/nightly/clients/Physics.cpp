// Prints what the cart of cartpole.cpp shows after each push: physics X SPEED ANGLE TURN PUSH... Compiled with -fno-access-control.
#define main client_main
#include "cartpole.cpp"
#undef main

int main(int argc, char** argv) {
  Cart cart;
  double* const state[] = {&cart.x_, &cart.x_dot_, &cart.angle_, &cart.angle_dot_};
  for (int place = 0; place < 4; ++place) *state[place] = std::atof(argv[1 + place]);
  std::cout.precision(9);
  for (int place = 5; place < argc; ++place) {
    const AgentState told = cart.Push(std::string(argv[place]) == "1");
    for (const double* value : state) std::cout << *value << ' ';
    std::cout << (told == AgentState::AGENT_STATE_ENDED) << '\n';
  }
}
