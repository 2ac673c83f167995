package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private := redistest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der := redistest.Must(x509.CreateCertificate(rand.Reader, of, of, &private.PublicKey, private))(t)
	keyDER := redistest.Must(x509.MarshalECPrivateKey(private))(t)
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(t.TempDir(), name)
		redistest.WantErr(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return file
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", keyDER)
}

func TestTLSAndPasswordByFile(t *testing.T) {
	cert, key := certificate(t)
	l := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	redistest.StartServer(t, redistest.Newest(t), "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", cert, "--tls-auth-clients", "yes", "--requirepass", "se cret")
	to := "rediss://127.0.0.1:" + port
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "secret")
		redistest.WantErr(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	certs := []string{"--tls-ca", cert, "--tls-cert", cert, "--tls-key", key}
	good := func(url string, args ...string) {
		t.Helper()
		if out, err := do(t, url, append(append([]string{"ls"}, certs...), args...)...); err != nil || !strings.HasPrefix(out, "Nothing is held") {
			t.Errorf("ls %q: %v %s", args, err, out)
		}
	}
	good(to, "--redis-password-file", file("se cret\n"))
	good("", "--redis-file", file("rediss://:se%20cret@127.0.0.1:"+port+"\n"))
	t.Setenv("REDIS_PASSWORD", "se cret")
	good(to)
	t.Setenv("REDIS_TLS_CA", cert)
	t.Setenv("REDIS_TLS_CERT", cert)
	t.Setenv("REDIS_TLS_KEY", key)
	certs = nil
	good(to)
	t.Setenv("REDIS_PASSWORD", "wrong")
	if out, err := do(t, to, "ls"); err == nil || strings.Contains(err.Error()+out, "wrong password:") || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("with a wrong password: %v %s", err, out)
	}
	t.Setenv("REDIS_TLS_CA", "")
	if _, err := do(t, to, "ls"); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the authority: %v", err)
	}
}
