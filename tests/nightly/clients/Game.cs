// A game that has agents and no Unity: the types of UnityEngine that RollcastAgent.cs names, and a loop that calls them.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Reflection;

namespace UnityEngine
{
    public sealed class TooltipAttribute : Attribute { public TooltipAttribute(string text) { } }

    public sealed class DefaultExecutionOrder : Attribute { public DefaultExecutionOrder(int order) { } }

    public class Object
    {
        public static void DontDestroyOnLoad(Object what) { }
    }

    public class MonoBehaviour : Object
    {
        public bool enabled = true;
        public GameObject gameObject;
    }

    public sealed class GameObject : Object
    {
        public static readonly List<MonoBehaviour> All = new List<MonoBehaviour>();

        public GameObject(string name) { }

        public T AddComponent<T>() where T : MonoBehaviour, new()
        {
            var added = new T { gameObject = this };
            All.Add(added);
            return added;
        }
    }

    public static class Debug { public static void Log(object what) { Console.WriteLine(what); } }

    public static class Time
    {
        static readonly System.Diagnostics.Stopwatch watch = System.Diagnostics.Stopwatch.StartNew();
        public static float realtimeSinceStartup { get { return (float)watch.Elapsed.TotalSeconds; } }
    }

    public static class Random
    {
        static System.Random random = new System.Random();
        public static float value { get { return (float)random.NextDouble(); } }
        public static void InitState(int seed) { random = new System.Random(seed); }
    }

    public static class Application
    {
        public static string productName = "a game";
        public static bool isBatchMode = true;
        public static int? Ended;
        public static void Quit(int code) { Ended = code; }
    }
}

// A cart of CartPole.cs whose pole falls or is stopped.
sealed class CartAgent : RollcastAgent
{
    public static int Steps;
    readonly Cart cart = new Cart();

    public CartAgent()
    {
        Behavior = "CartPole";
        Observations = 4;
        Branches = new[] { 2 };
        DecisionPeriod = 1;
        MaxDecisions = 500;
    }

    protected override void OnEpisodeBegin() { cart.Reset(new Random((int)(UnityEngine.Random.value * int.MaxValue))); }

    protected override void OnObserve(List<float> observation) { observation.AddRange(cart.Observation); }

    protected override void OnAct(float[] continuous, int[] discrete)
    {
        cart.Push(discrete[0]);
        Steps++;
        AddReward(1);
        if (cart.State == RollcastState.Ended) EndEpisode();
    }
}

static class Game
{
    const int Agents = 16, UpdatesOfOne = 1500;

    static int Main(string[] arguments)
    {
        for (var number = 0; number < Agents; number++)
        {
            var agent = new UnityEngine.GameObject("cart").AddComponent<CartAgent>();
            agent.Address = arguments[0];
            Call(agent, "OnEnable");
        }
        var session = UnityEngine.GameObject.All.Single(each => each is RollcastSession);
        for (var update = 1; UnityEngine.Application.Ended == null; update++)
        {
            Call(session, "FixedUpdate");
            if (update % UpdatesOfOne != 0) continue;
            var agent = UnityEngine.GameObject.All.OfType<CartAgent>().ElementAt(update / UpdatesOfOne % Agents);
            Call(agent, "OnDisable"); // it leaves amid an episode, and comes back as another one
            Call(agent, "OnEnable");
        }
        Console.WriteLine("goodbye after " + CartAgent.Steps + " steps");
        Call(session, "OnDestroy");
        return UnityEngine.Application.Ended.Value;
    }

    // Calls what Unity finds by its name.
    static void Call(object what, string name)
    {
        var flags = BindingFlags.Instance | BindingFlags.NonPublic | BindingFlags.Public;
        what.GetType().GetMethod(name, flags).Invoke(what, null);
    }
}
