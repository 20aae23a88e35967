package egress

import "net/netip"

// global is the only part of IPv6 in which addresses of the Internet are given
// out (IANA "IPv6 Address Space"). All else is special, loopback, local,
// multicast and every way to write an IPv4 address included.
var global = netip.MustParsePrefix("2000::/3")

// nat64 carries an IPv4 address in its last four bytes (RFC 6052 §2.1). A
// network without IPv4 reaches all of IPv4 through it.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// special lists the IANA special-purpose registries (RFC 6890), the multicast
// block, and one address that the registries do not know. The entries that the
// registry calls globally reachable are for DNS and relays; no server of ours.
var special = prefixes(
	"0.0.0.0/8",         // this network
	"10.0.0.0/8",        // private
	"100.64.0.0/10",     // shared by carriers; metadata of Alibaba
	"127.0.0.0/8",       // loopback
	"168.63.129.16/32",  // the host of an Azure machine
	"169.254.0.0/16",    // link-local; metadata of most clouds
	"172.16.0.0/12",     // private
	"192.0.0.0/24",      // protocol assignments; metadata of Oracle
	"192.0.2.0/24",      // documentation
	"192.31.196.0/24",   // AS112
	"192.52.193.0/24",   // AMT
	"192.88.99.0/24",    // 6to4 relays
	"192.168.0.0/16",    // private
	"192.175.48.0/24",   // AS112
	"198.18.0.0/15",     // benchmarking
	"198.51.100.0/24",   // documentation
	"203.0.113.0/24",    // documentation
	"224.0.0.0/4",       // multicast
	"240.0.0.0/4",       // reserved, and broadcast
	"2001::/23",         // protocol assignments, with Teredo
	"2001:db8::/32",     // documentation
	"2002::/16",         // 6to4
	"2620:4f:8000::/48", // AS112
	"3fff::/20",         // documentation
)

func prefixes(list ...string) (all []netip.Prefix) {
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// Allows reports whether h may connect to a: an address of the Internet, or
// one in h.AllowCIDRs, or any with h.AnyAddress. An IPv4 address inside an IPv6
// one is judged for itself where it is what is reached (IPv4-mapped, NAT64);
// the forms that nothing should use any more (IPv4-compatible, 6to4, Teredo)
// are special as a whole.
func (h Host) Allows(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if h.AnyAddress || within(h.AllowCIDRs, a) {
		return a.IsValid()
	}
	if nat64.Contains(a) {
		b := a.As16()
		return h.Allows(netip.AddrFrom4([4]byte(b[12:])))
	}
	return a.IsValid() && (a.Is4() || global.Contains(a)) && !within(special, a)
}

func within(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
