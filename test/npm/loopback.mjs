// Loaded before a server that listens on every interface and has no option for
// it: whatever it listens on, it listens on loopback.
import { Server } from "node:net";

const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, { port: Number(port), host: "127.0.0.1" }, ...rest);
};
