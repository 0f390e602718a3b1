// Plays CartPole for a Rollcast gateway, with gRPC's C++ library and the generated messages alone.
//
//     build/cartpole 127.0.0.1:50052 [CARTS]
//
// Copy this file and replace `Cart`, `behavior` and the names of this example. Everything a client does is in `Play`.

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "rollcast/v1/client.grpc.pb.h"

namespace {

using rollcast::v1::AgentState;
using rollcast::v1::AgentSteps;
using rollcast::v1::ClientService;
using rollcast::v1::PlayRequest;
using rollcast::v1::PlayResponse;

using Parameters = std::map<std::string, float>;

// A cart with a pole, with the equations and constants of Gymnasium's CartPole-v1.
class Cart {
 public:
  // Starts an episode with the pole almost upright. `half_length`, an environment parameter of the run file, is that of the pole, in m.
  void Begin(std::mt19937& draws, const Parameters& parameters) {
    std::uniform_real_distribution<double> almost_zero(-0.05, 0.05);
    x_ = almost_zero(draws);
    x_dot_ = almost_zero(draws);
    angle_ = almost_zero(draws);
    angle_dot_ = almost_zero(draws);
    const auto found = parameters.find("half_length");
    half_length_ = found == parameters.end() ? 0.5 : found->second;
    steps_ = 0;
  }

  // Takes one step of Euler's method, and returns whether the episode continues.
  AgentState Push(bool to_the_right) {
    const double sine = std::sin(angle_), cosine = std::cos(angle_);
    const double mass = kCartMass + kPoleMass, moment = kPoleMass * half_length_;
    const double pushed = ((to_the_right ? kForce : -kForce) + moment * angle_dot_ * angle_dot_ * sine) / mass;
    const double angle_acc =
        (kGravity * sine - cosine * pushed) / (half_length_ * (4.0 / 3.0 - kPoleMass * cosine * cosine / mass));
    const double x_acc = pushed - moment * angle_acc * cosine / mass;
    x_ += kTickSeconds * x_dot_;
    x_dot_ += kTickSeconds * x_acc;
    angle_ += kTickSeconds * angle_dot_;
    angle_dot_ += kTickSeconds * angle_acc;
    ++steps_;
    if (std::abs(x_) > kPositionLimit || std::abs(angle_) > kAngleLimit) return AgentState::AGENT_STATE_ENDED;
    return steps_ < kStepLimit ? AgentState::AGENT_STATE_UNSPECIFIED : AgentState::AGENT_STATE_INTERRUPTED;
  }

  // Appends what the cart observes, and the reward of its last step.
  void Report(int number, float reward, AgentState state, AgentSteps* steps) const {
    steps->add_agents(number);
    for (const double value : {x_, x_dot_, angle_, angle_dot_}) steps->add_values(static_cast<float>(value));
    steps->add_rewards(reward);
    steps->add_states(state);
  }

 private:
  static constexpr double kGravity = 9.8, kCartMass = 1.0, kPoleMass = 0.1, kForce = 10.0, kTickSeconds = 0.02;
  static constexpr double kPositionLimit = 2.4, kAngleLimit = 12.0 * 2.0 * M_PI / 360.0;
  static constexpr int kStepLimit = 500;

  double x_ = 0, x_dot_ = 0, angle_ = 0, angle_dot_ = 0, half_length_ = 0.5;
  int steps_ = 0;
};

// Returns the first message: the name, the token if there is one, and what the agents observe and do.
PlayRequest FirstMessage() {
  PlayRequest request;
  auto* hello = request.mutable_hello();
  hello->set_name("cpp");
  if (const char* token = std::getenv("ROLLCAST_TOKEN")) hello->set_token(token);
  auto* behavior = hello->add_behaviors();
  behavior->set_name("CartPole");
  auto* observation = behavior->add_observations();
  observation->set_name("obs");
  observation->set_dtype(rollcast::v1::DTYPE_FLOAT32);
  observation->add_shape(4);
  observation->set_kind(rollcast::v1::OBSERVATION_KIND_VECTOR);
  behavior->mutable_action()->add_discrete_branches(2);
  return request;
}

// Pushes the carts that have an action, begins the episodes that are due, and returns the message with what all observe then.
PlayRequest NextMessage(const PlayResponse& answer, bool begin_all, const Parameters& parameters, std::mt19937& draws,
                        std::vector<Cart>& carts) {
  PlayRequest request;
  auto* steps = request.add_steps();
  steps->set_behavior("CartPole");
  for (std::size_t number = 0; begin_all && number < carts.size(); ++number) {
    carts[number].Begin(draws, parameters);
    carts[number].Report(static_cast<int>(number), 0, AgentState::AGENT_STATE_UNSPECIFIED, steps);
  }
  for (const auto& actions : answer.actions()) {
    for (int index = 0; index < actions.agents_size(); ++index) {
      const int number = actions.agents(index);
      Cart& cart = carts.at(number);
      const AgentState state = cart.Push(actions.discrete(index) == 1);
      cart.Report(number, 1, state, steps);
      if (state == AgentState::AGENT_STATE_UNSPECIFIED) continue;
      cart.Begin(draws, parameters);  // the next episode begins in the same message
      cart.Report(number, 0, AgentState::AGENT_STATE_UNSPECIFIED, steps);
    }
  }
  return request;
}

// Returns plain text, or TLS if ROLLCAST_TLS_CA names the file with the gateway's authority.
std::shared_ptr<grpc::ChannelCredentials> Credentials() {
  const char* path = std::getenv("ROLLCAST_TLS_CA");
  if (path == nullptr) return grpc::InsecureChannelCredentials();
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = text.str();
  return grpc::SslCredentials(options);
}

// Plays until the gateway ends it, and returns the status of the stream. `goodbye` gets the reason that the gateway gives, `count` the
// number of steps.
grpc::Status Play(const std::string& address, std::vector<Cart>& carts, std::string* goodbye, long* count) {
  const auto stub = ClientService::NewStub(grpc::CreateChannel(address, Credentials()));
  grpc::ClientContext context;
  const auto stream = stub->Play(&context);
  PlayResponse answer;
  Parameters parameters;
  std::mt19937 draws;
  PlayRequest request = FirstMessage();
  for (bool is_new = true; stream->Write(request) && stream->Read(&answer); is_new = false) {
    if (!answer.goodbye().empty()) {
      *goodbye = answer.goodbye();
      break;
    }
    if (answer.has_environment()) {
      const auto& told = answer.environment().parameters();
      parameters = Parameters(told.begin(), told.end());
    }
    for (const auto& actions : answer.actions()) *count += actions.agents_size();
    if (is_new) draws.seed(answer.environment().seed());
    request = NextMessage(answer, is_new || answer.reset(), parameters, draws, carts);
  }
  stream->WritesDone();
  return stream->Finish();
}

// Returns whether an error comes back however often the client connects.
bool IsFatal(grpc::StatusCode code) {
  return code == grpc::StatusCode::INVALID_ARGUMENT || code == grpc::StatusCode::RESOURCE_EXHAUSTED ||
         code == grpc::StatusCode::UNIMPLEMENTED;
}

}  // namespace

// Plays until the run ends; connects again while the gateway is away.
int main(int argc, char** argv) {
  const int count = argc > 2 ? std::atoi(argv[2]) : 8;
  if (argc < 2 || count < 1) {
    std::cerr << "usage: cartpole ADDRESS [CARTS], with the address of `rollcast act clients --listen`" << std::endl;
    return 2;
  }
  const std::string address = argv[1];
  std::vector<Cart> carts(count);
  while (true) {
    std::string goodbye;
    long count = 0;
    const grpc::Status status = Play(address, carts, &goodbye, &count);
    if (!goodbye.empty()) {
      std::cout << "goodbye after " << count << " steps: " << goodbye << std::endl;
      return count > 0 ? 0 : 1;  // without a step it was refused
    }
    std::cerr << address << ": "
              << (status.ok() ? "the gateway closed the stream" : status.error_message()) << std::endl;
    if (IsFatal(status.error_code())) return 1;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}
