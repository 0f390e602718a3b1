// A client of a Rollcast gateway over a WebSocket, in one file without packages: .NET Standard 2.0, C# 7.3, Unity 2019 and newer.
//
//     var hello = new RollcastHello { Name = "my game" };
//     hello.Behaviors.Add(new RollcastBehavior { Name = "Walker", Observations = 4, Branches = new[] { 2 } });
//     using (var client = new RollcastClient("127.0.0.1:50053", hello))
//     {
//         var message = new RollcastMessage();
//         message.Add("Walker", agent: 0, observation: new float[] { ... }, reward: 0, state: RollcastState.Asks);
//         foreach (var action in client.Play(message).Actions) ...
//     }
using System;
using System.Collections.Generic;
using System.Globalization;
using System.Net.WebSockets;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

// What an agent reports: it asks for an action, its episode ended by itself, or it was ended from outside.
public enum RollcastState { Asks, Ended, Interrupted }

// The agents of one behavior: vectors of numbers, and continuous axes in [-1, 1], discrete branches, or both.
public sealed class RollcastBehavior
{
    public string Name = "";
    public int Observations;
    public int Axes;
    public int[] Branches = new int[0];
}

// Who the client is; it goes out with the first message.
public sealed class RollcastHello
{
    public string Name = "csharp";
    public string Token = "";
    public readonly List<RollcastBehavior> Behaviors = new List<RollcastBehavior>();
}

// The reports of one step of the simulator. An agent may report twice: the end of its episode, then the start of the next one.
public sealed class RollcastMessage
{
    sealed class Rows
    {
        public readonly StringBuilder Agents = new StringBuilder(), Values = new StringBuilder();
        public readonly StringBuilder Rewards = new StringBuilder(), States = new StringBuilder();
    }

    readonly Dictionary<string, Rows> behaviors = new Dictionary<string, Rows>();

    // Adds a report; `behavior` may have "?team=1" at its end. The reward is the sum since the agent's last action.
    public void Add(string behavior, int agent, IList<float> observation, float reward, RollcastState state)
    {
        Rows rows;
        if (!behaviors.TryGetValue(behavior, out rows)) behaviors[behavior] = rows = new Rows();
        Json.Append(rows.Agents, agent);
        foreach (var value in observation) Json.Append(rows.Values, value);
        Json.Append(rows.Rewards, reward);
        Json.Append(rows.States, (int)state);
    }

    public void Clear() { behaviors.Clear(); }

    public bool IsEmpty { get { return behaviors.Count == 0; } }

    internal string Write(RollcastHello hello)
    {
        var text = new StringBuilder("{");
        if (hello != null) text.Append("\"hello\":").Append(Describe(hello)).Append(',');
        text.Append("\"steps\":[");
        foreach (var pair in behaviors)
        {
            if (text[text.Length - 1] != '[') text.Append(',');
            text.Append("{\"behavior\":").Append(Json.Quote(pair.Key));
            text.Append(",\"agents\":[").Append(pair.Value.Agents).Append("],\"values\":[").Append(pair.Value.Values);
            text.Append("],\"rewards\":[").Append(pair.Value.Rewards);
            text.Append("],\"states\":[").Append(pair.Value.States).Append("]}");
        }
        return text.Append("]}").ToString();
    }

    static string Describe(RollcastHello hello)
    {
        var behaviors = new StringBuilder();
        foreach (var each in hello.Behaviors)
        {
            if (behaviors.Length > 0) behaviors.Append(',');
            behaviors.Append("{\"name\":").Append(Json.Quote(each.Name)).Append(",\"observations\":[{\"name\":\"obs\",");
            behaviors.Append("\"dtype\":\"DTYPE_FLOAT32\",\"kind\":\"OBSERVATION_KIND_VECTOR\",\"shape\":[\"");
            behaviors.Append(each.Observations).Append("\"]}],\"action\":{\"continuousSize\":").Append(each.Axes);
            behaviors.Append(",\"discreteBranches\":[").Append(string.Join(",", each.Branches)).Append("]}}");
        }
        return "{\"name\":" + Json.Quote(hello.Name) + ",\"token\":" + Json.Quote(hello.Token) + ",\"behaviors\":[" + behaviors + "]}";
    }
}

// The actions of one agent.
public struct RollcastAction
{
    public string Behavior;
    public int Agent;
    public float[] Continuous;
    public int[] Discrete;
}

// The answer to a message.
public sealed class RollcastAnswer
{
    public readonly List<RollcastAction> Actions = new List<RollcastAction>();
    public bool Reset; // drop all episodes, and begin new ones: there are no actions
    public bool HasEnvironment; // whether the next two were sent: they hold for episodes that begin from now on
    public uint Seed;
    public readonly Dictionary<string, float> Parameters = new Dictionary<string, float>();
}

// The gateway ended the conversation; the message says why.
public sealed class RollcastGoodbye : Exception
{
    public RollcastGoodbye(string why) : base(why) { }
}

// Sends messages to a gateway, each after the answer to the one before it. Not for several threads at once.
public sealed class RollcastClient : IDisposable
{
    readonly ClientWebSocket socket = new ClientWebSocket();
    readonly Dictionary<string, int[]> sizes = new Dictionary<string, int[]>(); // axes and branches of each behavior
    RollcastHello hello;
    Task<string> coming;

    // address: "host:port", or a URL with ws or wss. Connects, and throws if nothing answers there.
    public RollcastClient(string address, RollcastHello hello)
    {
        this.hello = hello;
        foreach (var each in hello.Behaviors) sizes[each.Name] = new[] { each.Axes, each.Branches.Length };
        socket.Options.AddSubProtocol("rollcast.v1.json");
        var url = (address.Contains("://") ? address : "ws://" + address).TrimEnd('/') + "/v1/play";
        Task.Run(() => socket.ConnectAsync(new Uri(url), CancellationToken.None)).GetAwaiter().GetResult();
        coming = Receive();
    }

    // Sends a message and waits for its answer. Throws RollcastGoodbye with the last one.
    public RollcastAnswer Play(RollcastMessage message) { return PlayAsync(message).GetAwaiter().GetResult(); }

    public async Task<RollcastAnswer> PlayAsync(RollcastMessage message)
    {
        var bytes = new ArraySegment<byte>(Encoding.UTF8.GetBytes(message.Write(hello)));
        hello = null;
        await socket.SendAsync(bytes, WebSocketMessageType.Text, true, CancellationToken.None).ConfigureAwait(false);
        var text = await coming.ConfigureAwait(false);
        coming = Receive(); // at once: only a socket that receives answers the gateway's pings
        return Read(text);
    }

    // Leaves: the running episodes count as interrupted.
    public void Dispose()
    {
        try
        {
            if (socket.State == WebSocketState.Open)
                socket.CloseOutputAsync(WebSocketCloseStatus.NormalClosure, "", CancellationToken.None).Wait(1000);
        }
        catch (AggregateException) { } // it has hung up
        socket.Dispose();
        coming.ContinueWith(each => each.Exception, TaskContinuationOptions.OnlyOnFaulted); // it was cut off, as it should
    }

    async Task<string> Receive()
    {
        var buffer = new byte[4096];
        var length = 0;
        for (;;)
        {
            var room = new ArraySegment<byte>(buffer, length, buffer.Length - length);
            var part = await socket.ReceiveAsync(room, CancellationToken.None).ConfigureAwait(false);
            if (part.MessageType == WebSocketMessageType.Close)
                throw new WebSocketException("the gateway hung up: " + socket.CloseStatusDescription);
            length += part.Count;
            if (part.EndOfMessage) return Encoding.UTF8.GetString(buffer, 0, length);
            if (length == buffer.Length) Array.Resize(ref buffer, 2 * length);
        }
    }

    RollcastAnswer Read(string text)
    {
        var start = 0;
        var content = (Dictionary<string, object>)Json.Value(text, ref start);
        object found;
        if (content.TryGetValue("goodbye", out found)) throw new RollcastGoodbye((string)found);
        var answer = new RollcastAnswer { Reset = content.TryGetValue("reset", out found) && (bool)found };
        if (content.TryGetValue("environment", out found))
        {
            var environment = (Dictionary<string, object>)found;
            answer.HasEnvironment = true;
            if (environment.TryGetValue("seed", out found)) answer.Seed = (uint)(double)found;
            if (environment.TryGetValue("parameters", out found))
                foreach (var pair in (Dictionary<string, object>)found) answer.Parameters[pair.Key] = (float)(double)pair.Value;
        }
        if (content.TryGetValue("actions", out found))
            foreach (var each in (List<object>)found) Read((Dictionary<string, object>)each, answer);
        return answer;
    }

    void Read(Dictionary<string, object> content, RollcastAnswer answer)
    {
        var behavior = (string)content["behavior"];
        var size = sizes[behavior.Split('?')[0]];
        var agents = (List<object>)content["agents"];
        var continuous = content.ContainsKey("continuous") ? (List<object>)content["continuous"] : null;
        var discrete = content.ContainsKey("discrete") ? (List<object>)content["discrete"] : null;
        for (var row = 0; row < agents.Count; row++)
        {
            var action = new RollcastAction { Behavior = behavior, Agent = (int)(double)agents[row] };
            action.Continuous = new float[size[0]];
            action.Discrete = new int[size[1]];
            for (var axis = 0; axis < size[0]; axis++) action.Continuous[axis] = (float)(double)continuous[row * size[0] + axis];
            for (var branch = 0; branch < size[1]; branch++) action.Discrete[branch] = (int)(double)discrete[row * size[1] + branch];
            answer.Actions.Add(action);
        }
    }
}

// Just enough of JSON: objects are dictionaries, lists are List<object>, numbers are double.
static class Json
{
    public static void Append(StringBuilder list, float value)
    {
        if (list.Length > 0) list.Append(',');
        var text = value.ToString("R", CultureInfo.InvariantCulture);
        list.Append(float.IsNaN(value) || float.IsInfinity(value) ? Quote(text) : text);
    }

    public static string Quote(string text)
    {
        var quoted = new StringBuilder("\"");
        foreach (var each in text)
            if (each < ' ' || each > '~' || each == '"' || each == '\\') quoted.Append("\\u").Append(((int)each).ToString("x4"));
            else quoted.Append(each);
        return quoted.Append('"').ToString();
    }

    public static object Value(string text, ref int at)
    {
        switch (Next(text, ref at))
        {
            case '{':
                var members = new Dictionary<string, object>();
                for (at++; Next(text, ref at) != '}'; at++)
                {
                    var name = String(text, ref at);
                    Next(text, ref at);
                    at++; // the colon
                    members[name] = Value(text, ref at);
                    if (Next(text, ref at) == '}') break;
                }
                at++;
                return members;
            case '[':
                var list = new List<object>();
                for (at++; Next(text, ref at) != ']'; at++)
                {
                    list.Add(Value(text, ref at));
                    if (Next(text, ref at) == ']') break;
                }
                at++;
                return list;
            case '"': return String(text, ref at);
        }
        var start = at;
        while (at < text.Length && ",]} \n\r\t".IndexOf(text[at]) < 0) at++;
        var word = text.Substring(start, at - start);
        return word == "true" || word == "false" ? word == "true" : (object)double.Parse(word, CultureInfo.InvariantCulture);
    }

    static char Next(string text, ref int at)
    {
        while (char.IsWhiteSpace(text[at])) at++;
        return text[at];
    }

    static string String(string text, ref int at)
    {
        var content = new StringBuilder();
        while (text[++at] != '"')
        {
            if (text[at] != '\\') { content.Append(text[at]); continue; }
            var place = "bfnrt".IndexOf(text[++at]);
            if (text[at] == 'u')
            {
                content.Append((char)int.Parse(text.Substring(at + 1, 4), NumberStyles.HexNumber, CultureInfo.InvariantCulture));
                at += 4;
            }
            else content.Append(place < 0 ? text[at] : "\b\f\n\r\t"[place]);
        }
        at++;
        return content.ToString();
    }
}
