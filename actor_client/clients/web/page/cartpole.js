// CartPole as a client of a Rollcast gateway, in one file without packages, for node (18 or newer) and for browsers.
//
//   node cartpole.js 127.0.0.1:50053 8        eight carts at once; ends when the run is over
//   http://127.0.0.1:50053/                   the same in a browser: each open page is a client
//
// To use it for a simulator of yours, copy the file, keep RollcastClient, and replace Cart, SPEC and the names of this example.
"use strict";

// ---- The client ----------------------------------------------------------------------------------------------------------

// The gateway ended the conversation; the message says why.
class Goodbye extends Error {}

// Sends messages to a gateway, each after the answer to the one before it: over a WebSocket, or by POST where there is none.
class RollcastClient {
  // address: "host:port", or a URL: with ws or wss for a WebSocket, with http or https to post. hello: `Hello` of the contract, as JSON.
  static async connect(address, hello, WebSocketClass = findWebSocket()) {
    const { origin } = new URL(address.includes("://") ? address : `ws://${address}`);
    const client = new RollcastClient(hello);
    if (WebSocketClass && origin.startsWith("ws")) await client.open(WebSocketClass, `${origin}/v1/play`);
    else client.url = `${origin.replace(/^ws/, "http")}/v1/play/${drawName()}`;
    return client;
  }

  constructor(hello) {
    this.hello = hello; // goes out with the first message
    this.waiting = null; // what takes the next answer
  }

  open(WebSocketClass, url) {
    return new Promise((resolve, reject) => {
      this.socket = new WebSocketClass(url, "rollcast.v1.json");
      const fail = (why) => {
        this.failed ??= new Error(why);
        reject(this.failed);
        this.waiting?.reject(this.failed);
      };
      this.socket.onopen = resolve;
      this.socket.onmessage = (event) => this.waiting.resolve(event.data);
      this.socket.onerror = (event) => fail(event.message || `no gateway answers at ${url}`);
      this.socket.onclose = (event) => fail(`the gateway hung up (${event.code}) ${event.reason}`.trim());
    });
  }

  // Sends `{steps: [...], statistics: {...}}` and returns the answer. Throws Goodbye with the last one.
  async play(message) {
    const text = JSON.stringify(this.hello ? { hello: this.hello, ...message } : message);
    this.hello = undefined;
    const answer = JSON.parse(await (this.socket ? this.exchange(text) : this.post(text)));
    if (!answer.goodbye) return answer;
    this.close();
    throw new Goodbye(answer.goodbye);
  }

  exchange(text) {
    return new Promise((resolve, reject) => {
      if (this.failed) return reject(this.failed);
      this.waiting = { resolve, reject };
      this.socket.send(text);
    });
  }

  async post(text) {
    const headers = { "Content-Type": "application/json" };
    return (await fetch(this.url, { method: "POST", headers, body: text })).text();
  }

  // Leaves: the running episodes count as interrupted.
  close() {
    if (this.socket) this.socket.close();
    else fetch(this.url, { method: "DELETE" }).catch(() => {});
  }
}

// Returns WebSocket of the browser, of node 22 or of `node --experimental-websocket`, or of the package ws if it is installed.
function findWebSocket() {
  if (typeof WebSocket !== "undefined") return WebSocket;
  try {
    return require("ws");
  } catch {
    return undefined;
  }
}

// Returns the name of a session: a secret, because who knows it plays for this client.
function drawName() {
  const bytes = (globalThis.crypto ?? require("crypto").webcrypto).getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// ---- The simulator: the task of Gymnasium's CartPole-v1 ------------------------------------------------------------------

const GRAVITY = 9.8, CART_MASS = 1.0, POLE_MASS = 0.1, HALF_LENGTH = 0.5, FORCE = 10.0, SECONDS = 0.02;
const MOST_X = 2.4, MOST_ANGLE = (12 * 2 * Math.PI) / 360, MOST_STEPS = 500;

class Cart {
  constructor(random) {
    this.random = random;
    this.reset();
  }

  reset() {
    [this.x, this.speed, this.angle, this.turn] = Array.from({ length: 4 }, () => this.random() * 0.1 - 0.05);
    this.steps = 0;
  }

  get observation() {
    return [this.x, this.speed, this.angle, this.turn];
  }

  // Pushes to the left (0) or to the right (1) for one step, by the equations of Barto, Sutton and Anderson (1983).
  push(action) {
    const mass = CART_MASS + POLE_MASS;
    const sine = Math.sin(this.angle), cosine = Math.cos(this.angle);
    const pull = ((action === 1 ? FORCE : -FORCE) + POLE_MASS * HALF_LENGTH * this.turn ** 2 * sine) / mass;
    const turning =
      (GRAVITY * sine - cosine * pull) / (HALF_LENGTH * (4 / 3 - (POLE_MASS * cosine ** 2) / mass));
    const pushing = pull - (POLE_MASS * HALF_LENGTH * turning * cosine) / mass;
    this.x += SECONDS * this.speed;
    this.speed += SECONDS * pushing;
    this.angle += SECONDS * this.turn;
    this.turn += SECONDS * turning;
    this.steps += 1;
  }

  // How the contract calls the state: fallen, stopped by the limit of steps, or in an episode.
  get state() {
    if (Math.abs(this.x) > MOST_X || Math.abs(this.angle) > MOST_ANGLE) return "AGENT_STATE_ENDED";
    return this.steps >= MOST_STEPS ? "AGENT_STATE_INTERRUPTED" : "AGENT_STATE_UNSPECIFIED";
  }
}

// Returns a generator of numbers in [0, 1), the same for the same seed (mulberry32).
function seeded(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

// ---- Training ------------------------------------------------------------------------------------------------------------

const BEHAVIOR = "CartPole";
const SPEC = {
  name: BEHAVIOR,
  observations: [{ name: "obs", dtype: "DTYPE_FLOAT32", shape: ["4"], kind: "OBSERVATION_KIND_VECTOR" }],
  action: { discreteBranches: [2] },
};

// Plays many carts at once, all in one message: that is much faster than a message for each. Connects again while the gateway is
// away; returns the gateway's goodbye.
//
// progress: gets `steps`, `returns` (of the last 100 episodes) and `carts`, and is shown by whoever made it.
// say: gets a line for people when something happens.
async function train(address, name, token, count, progress, say) {
  for (;;) {
    try {
      const client = await RollcastClient.connect(address, { name, token, behaviors: [SPEC] });
      say(client.socket ? "playing over a WebSocket" : "playing by POST");
      await play(client, count, progress);
    } catch (error) {
      if (error instanceof Goodbye) return error.message;
      say(error.cause?.message || error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

// Plays until the gateway says goodbye, or the connection breaks, which are errors.
async function play(client, count, progress) {
  let random = Math.random, report = null;
  progress.carts = Array.from({ length: count }, () => new Cart(() => random()));
  for (;;) {
    const answer = await client.play(report ? { steps: [report] } : {}); // hello alone: its answer has the seed
    if (!report) random = seeded(answer.environment.seed ?? 0);
    if (!report || answer.reset) {
      progress.carts.forEach((cart) => cart.reset());
      report = { behavior: BEHAVIOR, agents: [...progress.carts.keys()], values: progress.carts.flatMap((cart) => cart.observation) };
      continue;
    }
    report = { behavior: BEHAVIOR, agents: [], values: [], rewards: [], states: [] };
    const [{ agents, discrete }] = answer.actions;
    agents.forEach((agent, place) => advance(agent, discrete[place], report, progress));
  }
}

// Steps one cart and reports it; an episode's end and the beginning of the next one are two reports in one message.
function advance(agent, action, report, progress) {
  const cart = progress.carts[agent];
  const add = (reward) => {
    report.agents.push(agent);
    report.values.push(...cart.observation);
    report.rewards.push(reward);
    report.states.push(cart.state);
  };
  cart.push(action);
  progress.steps += 1;
  add(1);
  if (cart.state === "AGENT_STATE_UNSPECIFIED") return;
  progress.returns.push(cart.steps);
  if (progress.returns.length > 100) progress.returns.shift();
  cart.reset();
  add(0);
}

function makeProgress() {
  return {
    steps: 0,
    returns: [],
    carts: [],
    get mean() {
      return this.returns.length ? this.returns.reduce((sum, each) => sum + each, 0) / this.returns.length : 0;
    },
    toString() {
      return `${this.steps} steps, mean return of the last ${this.returns.length} episodes ${this.mean.toFixed(1)}`;
    },
  };
}

// ---- In node -------------------------------------------------------------------------------------------------------------

async function main(address = "127.0.0.1:50053", count = "8") {
  const progress = makeProgress();
  const timer = setInterval(() => console.log(`${progress}`), 1000);
  const goodbye = await train(address, "node", process.env.ROLLCAST_TOKEN ?? "", Number(count), progress, console.error);
  clearInterval(timer);
  console.log(`goodbye after ${progress}: ${goodbye}`);
  process.exitCode = progress.steps ? 0 : 1; // without a step it was refused
}

// ---- In a browser --------------------------------------------------------------------------------------------------------

// Draws the first cart, 3 m to each side.
function draw(canvas, cart) {
  const paint = canvas.getContext("2d");
  const scale = canvas.width / 6, ground = canvas.height * 0.75;
  const x = canvas.width / 2 + cart.x * scale;
  paint.clearRect(0, 0, canvas.width, canvas.height);
  paint.fillStyle = "#888";
  paint.fillRect(0, ground, canvas.width, 1);
  paint.fillStyle = "#36c";
  paint.fillRect(x - 25, ground - 15, 50, 30);
  paint.strokeStyle = "#c63";
  paint.lineWidth = 8;
  paint.beginPath();
  paint.moveTo(x, ground - 15);
  paint.lineTo(x + 2 * HALF_LENGTH * scale * Math.sin(cart.angle), ground - 15 - 2 * HALF_LENGTH * scale * Math.cos(cart.angle));
  paint.stroke();
}

// A link gives the token behind a #, which browsers send to nobody: http://HOST:PORT/#TOKEN.
async function page() {
  const show = (id, text) => (document.getElementById(id).textContent = text);
  const canvas = document.getElementById("cart");
  const progress = makeProgress();
  const refresh = () => {
    if (progress.carts.length) draw(canvas, progress.carts[0]);
    show("progress", `${progress}`);
    window.requestAnimationFrame(refresh);
  };
  refresh();
  const token = window.location.hash.slice(1);
  const goodbye = await train(window.location.origin.replace(/^http/, "ws"), "browser", token, 16, progress, (line) => show("state", line));
  show("state", `The gateway says goodbye: ${goodbye}`);
}

if (typeof document !== "undefined") page();
else if (require.main === module) main(...process.argv.slice(2));
else module.exports = { RollcastClient, Goodbye, Cart, seeded, train, makeProgress, SPEC };
