// A WebSocket server that echoes every message, with compression.
import { WebSocketServer } from 'ws';

const options = { host: '127.0.0.1', port: Number(process.argv[2]), perMessageDeflate: true, maxPayload: 2 ** 25 };
const server = new WebSocketServer(options);
server.on('connection', (socket) => {
  socket.on('message', (data, binary) => socket.send(data, { binary }));
  // A case that breaks the protocol ends its own connection.
  socket.on('error', () => {});
});
