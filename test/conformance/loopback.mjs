// Loaded before the suite, whose servers listen on every interface and have no
// option for it: whatever they listen on, they listen on loopback. The suite asks
// a server for its port in the same breath, and Node knows it then only if it
// did not have to wait for a look-up of the host; so that one answers at once.
import dns from "node:dns";
import { Server } from "node:net";

const host = "127.0.0.1";

const { lookup } = dns;
dns.lookup = (name, options, done) =>
  name === host && options.all ? done(null, [{ address: host, family: 4 }]) : lookup(name, options, done);

const { listen } = Server.prototype;
Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, { port: Number(port), host }, ...rest);
};
