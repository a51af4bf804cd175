// Says how many complete requests it has seen, and what it read of this one.
import http from "node:http";

let complete = 0;
const hex = (text) => Buffer.from(text, "latin1").toString("hex");

const server = http.createServer((request, response) => {
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("error", () => {});
  request.on("end", () => {
    if (!request.complete) return;
    complete += 1;
    const body = Buffer.concat(pieces).toString("hex");
    const value = hex(request.headers["x-v"] ?? "");
    const line = `origin|${complete}|${request.method}|${hex(request.url)}|${body}|${value}`;
    response.writeHead(200, { "content-type": "text/plain", "content-length": line.length });
    response.end(line);
  });
});
server.keepAliveTimeout = 60_000;
server.maxRequestsPerSocket = 0;
server.listen(Number(process.argv[2]), "127.0.0.1");
