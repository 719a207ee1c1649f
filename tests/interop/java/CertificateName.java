import java.io.ByteArrayInputStream;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;

/** The subject of the certificate on standard input, as Kafka makes a principal of it. */
public final class CertificateName {
    public static void main(String[] arguments) throws Exception {
        byte[] pem = System.in.readAllBytes();
        X509Certificate certificate = (X509Certificate) CertificateFactory.getInstance("X.509")
            .generateCertificate(new ByteArrayInputStream(pem));
        System.out.println(certificate.getSubjectX500Principal().getName());
    }
}
