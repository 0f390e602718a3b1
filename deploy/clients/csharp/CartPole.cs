// CartPole as a client of a Rollcast gateway. With mono, or in a project of .NET with the same two files:
//
//     mcs -out:cartpole.exe CartPole.cs RollcastClient.cs && mono cartpole.exe 127.0.0.1:50053 8
//
// It ends when the run is over. The token, if the gateway asks for one, is read from the variable ROLLCAST_TOKEN.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Threading;

// The task of Gymnasium's CartPole-v1.
sealed class Cart
{
    const double Gravity = 9.8, CartMass = 1.0, PoleMass = 0.1, HalfLength = 0.5, Force = 10.0, Seconds = 0.02;
    const double MostX = 2.4, MostAngle = 12 * 2 * Math.PI / 360;
    const int MostSteps = 500;

    double x, speed, angle, turn;
    public int Steps;

    public float[] Observation { get { return new[] { (float)x, (float)speed, (float)angle, (float)turn }; } }

    public RollcastState State
    {
        get
        {
            if (Math.Abs(x) > MostX || Math.Abs(angle) > MostAngle) return RollcastState.Ended;
            return Steps >= MostSteps ? RollcastState.Interrupted : RollcastState.Asks;
        }
    }

    public void Reset(Random random)
    {
        x = random.NextDouble() * 0.1 - 0.05;
        speed = random.NextDouble() * 0.1 - 0.05;
        angle = random.NextDouble() * 0.1 - 0.05;
        turn = random.NextDouble() * 0.1 - 0.05;
        Steps = 0;
    }

    // Pushes to the left (0) or to the right (1) for one step, by the equations of Barto, Sutton and Anderson (1983).
    public void Push(int action)
    {
        double mass = CartMass + PoleMass, sine = Math.Sin(angle), cosine = Math.Cos(angle);
        var pull = ((action == 1 ? Force : -Force) + PoleMass * HalfLength * turn * turn * sine) / mass;
        var turning = (Gravity * sine - cosine * pull) / (HalfLength * (4.0 / 3 - PoleMass * cosine * cosine / mass));
        var pushing = pull - PoleMass * HalfLength * turning * cosine / mass;
        x += Seconds * speed;
        speed += Seconds * pushing;
        angle += Seconds * turn;
        turn += Seconds * turning;
        Steps++;
    }
}

static class Program
{
    const string Behavior = "CartPole";

    static readonly Queue<int> returns = new Queue<int>(); // of the last 100 episodes
    static int steps;

    static int Main(string[] arguments)
    {
        var hello = new RollcastHello { Name = "csharp", Token = Environment.GetEnvironmentVariable("ROLLCAST_TOKEN") ?? "" };
        hello.Behaviors.Add(new RollcastBehavior { Name = Behavior, Observations = 4, Branches = new[] { 2 } });
        var address = arguments.Length > 0 ? arguments[0] : "127.0.0.1:50053";
        var count = arguments.Length > 1 ? int.Parse(arguments[1]) : 8;
        for (;; Thread.Sleep(1000)) // connects again while the gateway is away
        {
            try
            {
                using (var client = new RollcastClient(address, hello)) Play(client, count);
            }
            catch (RollcastGoodbye goodbye)
            {
                Console.WriteLine("goodbye after " + Progress() + ": " + goodbye.Message);
                return steps > 0 ? 0 : 1; // without a step it was refused
            }
            catch (Exception error)
            {
                Console.Error.WriteLine(error.GetBaseException().Message);
            }
        }
    }

    // Plays many carts at once, all in one message: that is much faster than a message for each.
    static void Play(RollcastClient client, int count)
    {
        var carts = Enumerable.Range(0, count).Select(_ => new Cart()).ToArray();
        var message = new RollcastMessage();
        var random = new Random(unchecked((int)client.Play(message).Seed)); // hello alone: its answer has the seed
        Begin(carts, message, random);
        for (var watch = Stopwatch.StartNew();;)
        {
            var answer = client.Play(message);
            message.Clear();
            if (answer.Reset) Begin(carts, message, random);
            foreach (var action in answer.Actions) Step(carts[action.Agent], action, message, random);
            if (watch.ElapsedMilliseconds < 1000) continue;
            Console.WriteLine(Progress());
            watch.Restart();
        }
    }

    static void Begin(Cart[] carts, RollcastMessage message, Random random)
    {
        for (var agent = 0; agent < carts.Length; agent++)
        {
            carts[agent].Reset(random);
            message.Add(Behavior, agent, carts[agent].Observation, 0, RollcastState.Asks);
        }
    }

    // An episode's end and the beginning of the next one are two reports in one message.
    static void Step(Cart cart, RollcastAction action, RollcastMessage message, Random random)
    {
        cart.Push(action.Discrete[0]);
        steps++;
        message.Add(Behavior, action.Agent, cart.Observation, 1, cart.State);
        if (cart.State == RollcastState.Asks) return;
        returns.Enqueue(cart.Steps);
        if (returns.Count > 100) returns.Dequeue();
        cart.Reset(random);
        message.Add(Behavior, action.Agent, cart.Observation, 0, RollcastState.Asks);
    }

    static string Progress()
    {
        var mean = returns.Count > 0 ? returns.Average() : 0;
        return FormattableString.Invariant($"{steps} steps, mean return of the last {returns.Count} episodes {mean:F1}");
    }
}
