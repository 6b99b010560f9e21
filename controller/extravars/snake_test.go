package extravars

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestToSnake_AsTheIncumbent checks ansible-operator's behaviour with all its oddities: these names are in the roles of
// its users.
func TestToSnake_AsTheIncumbent(t *testing.T) {
	for in, want := range map[string]string{
		"camelCase": "camel_case", "PascalCase": "_pascal_case", "ABc": "_a_bc",
		"aB": "ab", "aBc": "a_bc", "ID": "_id", "userID": "user_id",
		"JSONData": "_json_data", "dataJSON": "data_json", "UPPER_SNAKE": "_upper_snake",
		"dbURL": "db_url", "apiURLs": "api_urls", "HTTPServer": "http_server",
		"URL": "__url", "URLs": "__urls", "HTTP": "__http", "HTTPs": "__https", "IP": "__ip", "IPs": "__ips",
		"HTTPS": "http_s", "useHTTPS": "use_http_s", "HTTPURL": "http__url",
		"podIP": "pod_ip", "podIPs": "pod_ips", "clusterIPRange": "cluster_ip_range", "nodeIPsURL": "node_ips__url",
		"IPAddress": "ip_address", "IPv4": "ip_v4", "ipv4Address": "ipv4_address", "myIPIP": "my_ip_ip",
		"SHIP": "_sh_ip", "ZIPCode": "_z_ip_code", "IPAM": "ip_am",
		"k8sVersion": "k8s_version", "a1b2": "a_1_b2", "a1b2c3d4": "a_1_b2c_3_d4",
		"v1beta1": "v1beta1", "x509Cert": "x509_cert", "sha256": "sha256",
		"OAuth2Token": "_o_auth2_token", "some-key": "some_key", "some.key": "some.key",
		"_leading": "_leading", "__double": "__double", "trailing_": "trailing_", "a__b": "a__b",
		"888": "888", "9": "9", "1abc": "1abc", "foo/bar": "foo/bar",
		"example.com/Foo": "example.com/_foo", "Foo Bar": "_foo_bar",
		"naïveÉtat": "naïveétat", "日本Key": "日本_key", "éA": "éa",
		"egressIPsegress": "egress_ips_egress", "IPsegress": "_ips_egress", "URLsIPs": "_urls__ips",
		"URLegressIPEgressHTTP":    "url_egress_ip_egress_http",
		"URLsegressIPsEgressHTTPs": "_urls_egress_ips_egress_https",
		"":                         "", " ": "", "   ": "", // ansible-operator panics
	} {
		if got := ToSnake(in); got != want {
			t.Errorf("ToSnake(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzToSnake(f *testing.F) {
	for _, s := range []string{"", " ", "camelCase", "a1b2c3", "HTTPURLs", "日本Key", "\xff", "IPsIPs", "a\x1bB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := ToSnake(s)
		if got != ToSnake(s) {
			t.Fatalf("ToSnake(%q) differs between two calls", s)
		}
		if (got == "") != (strings.Trim(s, " ") == "") {
			t.Fatalf("ToSnake(%q) = %q", s, got)
		}
		if strings.ContainsAny(got, " -") || strings.ContainsFunc(got, func(r rune) bool { return isUpper(r) }) {
			t.Fatalf("ToSnake(%q) = %q holds upper case or a separator other than _", s, got)
		}
		if !utf8.ValidString(got) {
			t.Fatalf("ToSnake(%q) = %q is not valid UTF-8", s, got)
		}
	})
}
