package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
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

// secured is a server that is reached over TLS: its clients have its own certificate, and its user "app" may do what
// the docs/security.md says, under any prefix. The harness itself goes in by the plain port as the default user.
type secured struct {
	*instance
	tlsPort int
	config  *tls.Config
}

const appUser, appPassword = "app", "secret"

func startSecured(v Version) (*secured, error) {
	s := &secured{instance: &instance{}}
	rules, err1 := DocumentedACL()
	revoking, err2 := documentedRules("| `+zscan", 1) // what a user that revokes needs besides
	dir, err3 := os.MkdirTemp("", "leasehold-tls-")
	defer os.RemoveAll(dir) // the server has read them when it answers
	var err4 error
	s.config, err4 = WriteCertificate(dir)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return s, err
	}
	if err := onFreePort(func() (err error) {
		s.stop()
		s.tlsPort = freePort()
		s.instance, err = startInstance(v, "--tls-port", strconv.Itoa(s.tlsPort),
			"--tls-cert-file", filepath.Join(dir, "server.crt"), "--tls-key-file", filepath.Join(dir, "server.key"),
			"--tls-ca-cert-file", filepath.Join(dir, "server.crt"), "--tls-auth-clients", "yes")
		return err
	}); err != nil {
		return s, err
	}
	user := []any{"ACL", "SETUSER", appUser, "reset", "on", ">" + appPassword}
	for _, rule := range append(rules, revoking...) {
		// Tests that share the server have prefixes of their own.
		user = append(user, strings.NewReplacer("~leasehold:*", "~*:{*", "&leasehold:inbox:*", "&*:inbox:*").Replace(rule))
	}
	return s, s.do(user...)
}

// connect has a client reach the server over TLS, as the restricted user.
func (s *secured) connect(opt *redis.UniversalOptions) {
	opt.Addrs = []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(s.tlsPort))}
	opt.Username, opt.Password, opt.TLSConfig = appUser, appPassword, s.config
	// What go-redis does with a TLSConfig, for code that puts itself before it.
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

// documentedRules is the rules in the line of docs/security.md that begins so.
func documentedRules(begin string, least int) (rules []string, err error) {
	text, err := os.ReadFile(inModule("docs", "security.md"))
	if err != nil {
		return nil, err
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

// WriteCertificate makes a certificate for both ends, which vouches for itself, leaves the files
// server.crt and server.key in dir, and returns what a client needs.
func WriteCertificate(dir string) (*tls.Config, error) {
	key, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	own := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "leasehold test"},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err2 := x509.CreateCertificate(rand.Reader, own, own, &key.PublicKey, key)
	keyDER, err3 := x509.MarshalPKCS8PrivateKey(key)
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	pair, err4 := tls.X509KeyPair(certPEM, keyPEM)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, errors.Join(err1, err2, err3, err4,
		os.WriteFile(filepath.Join(dir, "server.crt"), certPEM, 0o600), os.WriteFile(filepath.Join(dir, "server.key"), keyPEM, 0o600))
}
