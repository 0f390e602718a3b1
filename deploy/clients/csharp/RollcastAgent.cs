// Agents of a Unity scene as clients of a Rollcast gateway. Needs RollcastClient.cs beside it, and no package.
//
//     public class Walker : RollcastAgent
//     {
//         protected override void OnEpisodeBegin() { ... }                             // put the scene to its start
//         protected override void OnObserve(List<float> observation) { ... }           // as many numbers as Observations
//         protected override void OnAct(float[] continuous, int[] discrete) { ... }    // each FixedUpdate
//     }                                                       // these call AddReward(0.1f), EndEpisode() and Interrupt()
//
// All agents of the scene share one connection and one message, so that they wait for one answer together.
using System;
using System.Collections.Generic;
using UnityEngine;

public abstract class RollcastAgent : MonoBehaviour
{
    [Tooltip("Where the gateway listens: host:port, or a URL with ws or wss. The first agent of a scene decides.")]
    public string Address = "127.0.0.1:50053";
    [Tooltip("The token, if the gateway asks for one.")]
    public string Token = "";
    [Tooltip("Name of the policy: the key below behaviors in the run file.")]
    public string Behavior = "Walker";
    [Tooltip("Team of the agent in self-play.")]
    public int Team;
    [Tooltip("Number of numbers that OnObserve adds.")]
    public int Observations = 1;
    [Tooltip("Number of continuous actions, each from -1 to 1.")]
    public int Axes;
    [Tooltip("Number of choices of each discrete action.")]
    public int[] Branches = new int[0];
    [Tooltip("FixedUpdates from one decision to the next; in between, OnAct gets the same action again.")]
    public int DecisionPeriod = 5;
    [Tooltip("Decisions after which an episode is interrupted; 0 for no limit.")]
    public int MaxDecisions;

    readonly List<float> observation = new List<float>();
    RollcastState state = RollcastState.Asks;
    RollcastAction action;
    float reward;
    int decisions, updates;
    bool acts; // whether its episode runs, and `action` is of it

    internal int Number;

    string Id { get { return Team == 0 ? Behavior : Behavior + "?team=" + Team; } }

    protected abstract void OnEpisodeBegin();
    protected abstract void OnObserve(List<float> observation);
    protected abstract void OnAct(float[] continuous, int[] discrete);

    public void AddReward(float value) { reward += value; }

    // Ends the episode by the rules of the task; the next one begins in the next FixedUpdate.
    public void EndEpisode() { state = RollcastState.Ended; }

    // Ends the episode from outside: what might have followed has a value.
    public void Interrupt() { if (state == RollcastState.Asks) state = RollcastState.Interrupted; }

    protected virtual void OnEnable() { RollcastSession.Current().Join(this); }

    protected virtual void OnDisable() { RollcastSession.Current().Leave(this); }

    // Adds what the agent has to say in this update to a message.
    internal void Report(RollcastMessage message)
    {
        if (acts && state == RollcastState.Asks && MaxDecisions > 0 && decisions >= MaxDecisions) Interrupt();
        if (state != RollcastState.Asks) End(message);
        if (!acts)
        {
            OnEpisodeBegin();
            reward = 0;
            decisions = updates = 0;
            state = RollcastState.Asks;
        }
        if (updates++ % Math.Max(1, DecisionPeriod) == 0) Add(message);
    }

    // Adds the end of the running episode to a message.
    internal void End(RollcastMessage message)
    {
        if (acts) Add(message);
        acts = false;
    }

    // Forgets the running episode, of which the gateway wants to hear no more.
    internal void Drop() { acts = false; }

    internal void Take(RollcastAction given)
    {
        action = given;
        acts = true;
        decisions++;
    }

    internal void Act() { if (acts && state == RollcastState.Asks) OnAct(action.Continuous, action.Discrete); }

    void Add(RollcastMessage message)
    {
        observation.Clear();
        OnObserve(observation);
        message.Add(Id, Number, observation, reward, state);
        reward = 0;
    }
}

// The connection of a scene's agents; the first one makes it.
[DefaultExecutionOrder(-1000)]
public sealed class RollcastSession : MonoBehaviour
{
    static RollcastSession current;

    readonly List<RollcastAgent> agents = new List<RollcastAgent>();
    readonly RollcastMessage message = new RollcastMessage();
    readonly Dictionary<string, float> parameters = new Dictionary<string, float>();
    RollcastClient client;
    float retryAt;
    bool hasPlayed;
    int numbers;

    // Returns an environment parameter of the run file.
    public static float Parameter(string name, float otherwise)
    {
        float found;
        return current != null && current.parameters.TryGetValue(name, out found) ? found : otherwise;
    }

    internal static RollcastSession Current()
    {
        if (current == null)
        {
            current = new GameObject("Rollcast").AddComponent<RollcastSession>();
            DontDestroyOnLoad(current.gameObject);
        }
        return current;
    }

    internal void Join(RollcastAgent agent)
    {
        agent.Number = numbers++;
        agents.Add(agent);
    }

    internal void Leave(RollcastAgent agent)
    {
        agent.Interrupt();
        if (agents.Remove(agent)) agent.End(message);
    }

    void FixedUpdate()
    {
        if (agents.Count == 0 || Time.realtimeSinceStartup < retryAt) return;
        try
        {
            if (client == null) Connect();
            Exchange();
            hasPlayed = true;
        }
        catch (RollcastGoodbye goodbye)
        {
            Debug.Log("Rollcast: goodbye: " + goodbye.Message);
            enabled = false;
            if (Application.isBatchMode) Application.Quit(hasPlayed ? 0 : 1); // without a step it was refused
        }
        catch (Exception error) // it connects again while the gateway is away
        {
            Debug.Log("Rollcast: " + error.GetBaseException().Message);
            OnDestroy();
            message.Clear();
            foreach (var agent in agents) agent.Drop();
            retryAt = Time.realtimeSinceStartup + 1;
        }
    }

    void OnDestroy()
    {
        if (client != null) client.Dispose();
        client = null;
    }

    void Exchange()
    {
        foreach (var agent in agents.ToArray()) agent.Report(message);
        while (!message.IsEmpty)
        {
            var answer = client.Play(message);
            message.Clear();
            Note(answer);
            foreach (var action in answer.Actions)
            {
                var asked = agents.Find(agent => agent.Number == action.Agent);
                if (asked != null) asked.Take(action);
            }
            if (!answer.Reset) break;
            foreach (var agent in agents.ToArray())
            {
                agent.Drop();
                agent.Report(message);
            }
        }
        foreach (var agent in agents.ToArray()) agent.Act();
    }

    void Note(RollcastAnswer answer)
    {
        foreach (var pair in answer.Parameters) parameters[pair.Key] = pair.Value;
    }

    void Connect()
    {
        var hello = new RollcastHello { Name = Application.productName, Token = agents[0].Token };
        foreach (var agent in agents)
            if (!hello.Behaviors.Exists(each => each.Name == agent.Behavior))
                hello.Behaviors.Add(new RollcastBehavior
                {
                    Name = agent.Behavior, Observations = agent.Observations, Axes = agent.Axes, Branches = agent.Branches
                });
        client = new RollcastClient(agents[0].Address, hello);
        var answer = client.Play(message); // hello alone: its answer has the seed and the parameters
        UnityEngine.Random.InitState(unchecked((int)answer.Seed));
        Note(answer);
    }
}
