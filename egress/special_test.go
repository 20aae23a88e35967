package egress_test

import (
	"net/netip"
	"testing"

	"onbehalf.internal/broker/egress"
)

func TestAllows(t *testing.T) {
	plain := egress.Host{}
	ours := egress.Host{AllowCIDRs: []netip.Prefix{
		netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32"), netip.MustParsePrefix("127.0.0.1/32"),
	}}
	any := egress.Host{AnyAddress: true}
	type row struct {
		host    egress.Host
		addr    string
		allowed bool
	}
	allow := func(h egress.Host, addr string) row { return row{h, addr, true} }
	deny := func(h egress.Host, addr string) row { return row{h, addr, false} }

	for _, r := range []row{
		allow(plain, "8.8.8.8"),
		allow(plain, "2606:4700::1"),
		allow(plain, "::ffff:8.8.8.8"),   // IPv4-mapped
		allow(plain, "64:ff9b::808:808"), // NAT64: 8.8.8.8
		allow(plain, "172.15.255.255"),   // beside a private block
		allow(plain, "172.32.0.0"),
		allow(plain, "168.63.129.17"),

		deny(plain, "127.0.0.1"),
		deny(plain, "127.255.255.254"),
		deny(plain, "0.0.0.0"),
		deny(plain, "0.1.2.3"),
		deny(plain, "10.0.0.1"),
		deny(plain, "172.16.0.1"),
		deny(plain, "172.31.255.255"),
		deny(plain, "192.168.1.1"),
		deny(plain, "169.254.169.254"), // cloud metadata
		deny(plain, "169.254.170.2"),
		deny(plain, "168.63.129.16"),
		deny(plain, "100.64.0.1"),
		deny(plain, "100.100.100.200"),
		deny(plain, "192.0.0.192"),
		deny(plain, "192.0.2.1"),
		deny(plain, "192.88.99.1"),
		deny(plain, "198.18.0.1"),
		deny(plain, "198.51.100.1"),
		deny(plain, "203.0.113.1"),
		deny(plain, "224.0.0.1"),
		deny(plain, "240.0.0.1"),
		deny(plain, "255.255.255.255"),

		deny(plain, "::"),
		deny(plain, "::1"),
		deny(plain, "::127.0.0.1"), // IPv4-compatible
		deny(plain, "::8.8.8.8"),
		deny(plain, "::ffff:127.0.0.1"),     // IPv4-mapped
		deny(plain, "::ffff:0:7f00:1"),      // IPv4-translated
		deny(plain, "64:ff9b::a9fe:a9fe"),   // NAT64: 169.254.169.254
		deny(plain, "64:ff9b:1::a9fe:a9fe"), // NAT64 of a local network
		deny(plain, "64:ff9b:1::808:808"),
		deny(plain, "100::1"),
		deny(plain, "2001::1"), // Teredo
		deny(plain, "2001:0:808:808::1"),
		deny(plain, "2001:db8::1"),
		deny(plain, "2002:7f00:1::"), // 6to4: 127.0.0.1
		deny(plain, "2002:808:808::"),
		deny(plain, "3fff::1"),
		deny(plain, "5f00::1"),
		deny(plain, "fc00::1"),
		deny(plain, "fd00:ec2::254"),
		deny(plain, "fe80::1"),
		deny(plain, "fe80::1%eth0"),
		deny(plain, "fec0::1"),
		deny(plain, "ff02::1"),

		allow(ours, "10.1.2.3"),
		allow(ours, "::ffff:10.1.2.3"),
		allow(ours, "64:ff9b::a01:203"), // NAT64: 10.1.2.3
		allow(ours, "fd00:1::7"),
		allow(ours, "fd00:1::7%eth0"),
		allow(ours, "127.0.0.1"),
		allow(ours, "8.8.8.8"), // a CIDR adds, it does not replace
		deny(ours, "10.2.0.1"),
		deny(ours, "127.0.0.2"),
		deny(ours, "::1"),
		deny(ours, "2002:a01:203::"), // 6to4: 10.1.2.3, but a form of its own
		deny(ours, "fd00:2::7"),

		allow(any, "10.0.0.1"),
		allow(any, "169.254.169.254"),
		allow(any, "::1"),
	} {
		if got := r.host.Allows(netip.MustParseAddr(r.addr)); got != r.allowed {
			t.Errorf("Allows(%s) = %v, want %v (CIDRs %v, any %v)", r.addr, got, r.allowed, r.host.AllowCIDRs, r.host.AnyAddress)
		}
	}
	if any.Allows(netip.Addr{}) || plain.Allows(netip.Addr{}) {
		t.Error("no address at all is allowed")
	}
}

// FuzzAllows compares with what the standard library knows, and the forms of
// one IPv4 address with each other.
func FuzzAllows(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1})
	f.Add([]byte{8, 8, 8, 8})
	f.Add([]byte{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		var h egress.Host
		allowed := h.Allows(a)
		if local := a.Unmap(); allowed && (local.IsPrivate() || local.IsLoopback() || local.IsMulticast() ||
			local.IsLinkLocalUnicast() || local.IsUnspecified()) {
			t.Errorf("%v is allowed", a)
		}
		if h.AllowCIDRs = []netip.Prefix{netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())}; !h.Allows(a) {
			t.Errorf("%v is refused though its declaration allows it", a)
		}
		if !a.Is4() {
			return
		}
		v4 := a.As4()
		nat64 := netip.MustParseAddr("64:ff9b::").As16()
		copy(nat64[12:], v4[:])
		for _, form := range []netip.Addr{netip.AddrFrom16(a.As16()), netip.AddrFrom16(nat64)} {
			if (egress.Host{}).Allows(form) != allowed {
				t.Errorf("%v: allowed %v, but %v is not the same", a, allowed, form)
			}
		}
	})
}
