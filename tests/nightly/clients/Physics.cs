// Prints what a cart of CartPole.cs shows after each push: mono physics.exe X SPEED ANGLE TURN PUSH...
using System;
using System.Globalization;
using System.Linq;
using System.Reflection;

static class Physics
{
    static void Main(string[] arguments)
    {
        var cart = new Cart();
        var names = new[] { "x", "speed", "angle", "turn" };
        for (var place = 0; place < names.Length; place++)
        {
            var field = typeof(Cart).GetField(names[place], BindingFlags.Instance | BindingFlags.NonPublic);
            field.SetValue(cart, double.Parse(arguments[place], CultureInfo.InvariantCulture));
        }
        foreach (var push in arguments.Skip(names.Length))
        {
            cart.Push(int.Parse(push));
            var seen = cart.Observation.Select(each => each.ToString("R", CultureInfo.InvariantCulture));
            Console.WriteLine(string.Join(" ", seen) + " " + (cart.State == RollcastState.Ended ? 1 : 0));
        }
    }
}
