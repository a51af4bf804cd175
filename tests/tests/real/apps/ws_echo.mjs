// A WebSocket server that echoes every message, with compression.
import { WebSocketServer } from 'ws';

// Quick rather than small: the tunnel carries the bytes unread, however well they are packed.
const perMessageDeflate = { zlibDeflateOptions: { level: 1 } };
const options = { host: '127.0.0.1', port: Number(process.argv[2]), perMessageDeflate, maxPayload: 2 ** 25 };
const server = new WebSocketServer(options);
server.on('connection', (socket) => {
  socket.on('message', (data, binary) => socket.send(data, { binary }));
  // A case that breaks the protocol ends its own connection.
  socket.on('error', () => {});
});
