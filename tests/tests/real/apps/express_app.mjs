// Express with JSON, server-sent events and socket.io on one port.
import { createServer } from 'node:http';
import express from 'express';
import { Server } from 'socket.io';

const app = express();
app.set('trust proxy', 'loopback');
app.use(express.json());

app.get('/who', (req, res) => {
  res.json({ ip: req.ip, host: req.headers.host, protocol: req.protocol, requestId: req.get('x-request-id') });
});
// A conformance suite asks for this path with any method, and wants 200 with a body. It also sends what is
// forbidden while a request is being answered, so that takes a moment, from the end of the request.
app.all('/', (req, res) => {
  req.resume();
  req.on('end', () => setTimeout(() => res.send('here\n'), 200));
});
app.post('/json', (req, res) => res.json(req.body));

const listeners = new Set();
let events = 0;
app.get('/events', (req, res) => {
  res.writeHead(200, { 'Content-Type': 'text/event-stream' });
  res.flushHeaders();
  listeners.add(res);
  req.on('close', () => listeners.delete(res));
});
app.post('/emit', (req, res) => {
  events += 1;
  for (const listener of listeners) listener.write(`data: ${events}\n\n`);
  res.end();
});

const server = createServer(app);
const io = new Server(server);
io.on('connection', (socket) => {
  socket.on('echo', (value, done) => done(value));
  socket.on('binary', (value) => socket.emit('binary', Buffer.from(value).reverse()));
  socket.on('join', (room, done) => { socket.join(room); done(); });
  socket.on('say', (room, text) => io.to(room).emit('said', text));
});
server.listen(Number(process.argv[2]), '127.0.0.1');
