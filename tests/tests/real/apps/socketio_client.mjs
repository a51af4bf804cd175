// Connects as socket.io does by default, polling first, and checks feature by feature.
import dns from 'node:dns';
import { io } from 'socket.io-client';

// `*.localhost` means this machine, as in every browser; the system's resolver may not know it.
const lookup = dns.lookup;
dns.lookup = (host, options, done) => lookup(host.endsWith('.localhost') ? '127.0.0.1' : host, options, done);

const url = process.argv[2];
const fail = (why) => { console.error('failed:', why); process.exit(1); };
setTimeout(() => fail('nothing happened for 60 s'), 60_000).unref();
const ok = (name) => console.log(`ok ${name}`);
const once = (socket, event) => new Promise((resolve) => socket.once(event, resolve));
const connect = async (options) => {
  const socket = io(url, { forceNew: true, reconnection: false, ...options });
  socket.once('connect_error', (error) => fail(error));
  // Watched from the start: the upgrade may be done before the connection is told.
  socket.began = new Promise((resolve) => socket.io.once('open', () => {
    socket.upgraded = once(socket.io.engine, 'upgrade');
    resolve(socket.io.engine.transport.name);
  }));
  await once(socket, 'connect');
  return socket;
};

const first = await connect({});
if ((await first.began) !== 'polling') fail('it did not begin with polling');
ok('polling');
await first.upgraded;
if (first.io.engine.transport.name !== 'websocket') fail('it was not upgraded');
ok('upgraded');

const answer = await first.timeout(10_000).emitWithAck('echo', { deep: [1, 'zwei'] });
if (answer.deep[1] !== 'zwei') fail(answer);
ok('acknowledgement');

first.emit('binary', Buffer.from([1, 2, 255]));
const binary = await once(first, 'binary');
if (Buffer.compare(Buffer.from(binary), Buffer.from([255, 2, 1])) !== 0) fail(binary);
ok('binary');

const inside = await connect({ transports: ['websocket'] });
const outside = await connect({ transports: ['polling'] });
await inside.emitWithAck('join', 'room');
let leaked = false;
outside.on('said', () => { leaked = true; });
const heard = once(inside, 'said');
first.emit('say', 'room', 'hello');
if ((await heard) !== 'hello') fail('the room heard something else');
// A round trip after it: whatever was to leak would have come before.
await outside.emitWithAck('echo', 1);
if (leaked) fail('a message left its room');
ok('rooms');
process.exit(0);
