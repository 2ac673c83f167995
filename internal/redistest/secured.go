package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// secured is a server that is reached over TLS: its certificate and its
// clients' come from a CA of its own, and its user "app" may do what the
// docs/security.md says, under any prefix. The harness itself goes in by the plain
// port as the default user.
type secured struct {
	*instance
	tlsPort int
	config  *tls.Config
}

const appUser, appPassword = "app", "secret"

func startSecured(v Version) (*secured, error) {
	rules, err := DocumentedACL()
	if err != nil {
		return nil, err
	}
	revoking, err := RevokingACL()
	if err != nil {
		return nil, err
	}
	rules = append(rules, revoking...)
	dir, err := os.MkdirTemp("", "leasehold-tls-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // the server has read them when it answers
	s := &secured{}
	if s.config, err = writeCertificates(dir); err != nil {
		return nil, err
	}
	if err := onFreePort(func() (err error) {
		s.tlsPort = freePort()
		s.instance, err = startInstance(v, "--tls-port", strconv.Itoa(s.tlsPort),
			"--tls-cert-file", filepath.Join(dir, "server.crt"), "--tls-key-file", filepath.Join(dir, "server.key"),
			"--tls-ca-cert-file", filepath.Join(dir, "ca.crt"), "--tls-auth-clients", "yes")
		return err
	}); err != nil {
		return nil, err
	}
	user := []any{"ACL", "SETUSER", appUser, "reset", "on", ">" + appPassword}
	for _, rule := range rules {
		// Tests that share the server have prefixes of their own.
		rule = strings.NewReplacer("~leasehold:*", "~*:{*", "&leasehold:inbox:*", "&*:inbox:*").Replace(rule)
		user = append(user, rule)
	}
	if err := s.do(user...); err != nil {
		s.stop()
		return nil, fmt.Errorf("user %s: %w", appUser, err)
	}
	return s, nil
}

// connect has a client reach the server over TLS, as the restricted user.
func (s *secured) connect(opt *redis.UniversalOptions) {
	opt.Addrs = []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(s.tlsPort))}
	opt.Username, opt.Password, opt.TLSConfig = appUser, appPassword, s.config
	// What go-redis does with a TLSConfig, for those who put themselves before it.
	opt.Dialer = redis.NewDialer(&redis.Options{TLSConfig: s.config, DialTimeout: 5 * time.Second, ReadTimeout: 3 * time.Second})
}

// DocumentedACL is the rules for the server's user that docs/security.md lists.
func DocumentedACL() (rules []string, err error) {
	return documentedRules("ACL SETUSER app on >secret resetkeys", 15)
}

// DocumentedClusterACL is the rules that it lists in addition for a Cluster.
func DocumentedClusterACL() (rules []string, err error) {
	return documentedRules("ACL SETUSER app &leasehold:*:inbox:*", 4)
}

// RevokingACL is the rules that a user which revokes needs besides.
func RevokingACL() (rules []string, err error) { return documentedRules("| `+zscan", 1) }

// documentedRules is the rules in the line of docs/security.md that begins so.
func documentedRules(begin string, least int) (rules []string, err error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	var text []byte
	for {
		if text, err = os.ReadFile(filepath.Join(dir, "docs", "security.md")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			return nil, err
		}
		dir = filepath.Dir(dir)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, begin) {
			for _, word := range strings.Fields(strings.ReplaceAll(line, "`", "")) {
				if strings.ContainsRune("~&+", rune(word[0])) {
					rules = append(rules, word)
				}
			}
		}
	}
	if len(rules) < least {
		return nil, fmt.Errorf("docs/security.md has %d rules after %q: %q", len(rules), begin, rules)
	}
	return rules, nil
}

// writeCertificates makes a CA and one certificate of its for both ends, leaves
// the server's files in dir, and returns what a client needs.
func writeCertificates(dir string) (*tls.Config, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	from, to := time.Now().Add(-48*time.Hour), time.Now().Add(48*time.Hour)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "leasehold test CA"}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leasehold test"}, NotBefore: from, NotAfter: to,
		KeyUsage: x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	caPEM, certPEM, keyPEM := block("CERTIFICATE", caDER), block("CERTIFICATE", der), block("EC PRIVATE KEY", keyDER)
	for name, text := range map[string][]byte{"ca.crt": caPEM, "server.crt": certPEM, "server.key": keyPEM} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return nil, err
		}
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(caPEM)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
