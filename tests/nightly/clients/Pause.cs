// Plays a step, computes for several seconds, and plays another one: mono pause.exe ADDRESS
using System.Diagnostics;

static class Pause
{
    static void Main(string[] arguments)
    {
        var hello = new RollcastHello();
        hello.Behaviors.Add(new RollcastBehavior { Name = "CartPole", Observations = 4, Branches = new[] { 2 } });
        using (var client = new RollcastClient(arguments[0], hello))
        {
            var message = new RollcastMessage();
            message.Add("CartPole", 0, new float[4], 0, RollcastState.Asks);
            client.Play(message);
            for (var watch = Stopwatch.StartNew(); watch.ElapsedMilliseconds < 4000;) { }
            client.Play(message);
        }
    }
}
