use super::*;

#[track_caller]
fn check(text: &str, canonical: &str, nanos: i128) {
    let quantity: Quantity = text.parse().unwrap();
    assert_eq!((quantity.to_string().as_str(), quantity.nanos()), (canonical, nanos), "{text}");
    let again: Quantity = canonical.parse().unwrap();
    assert_eq!((again.to_string().as_str(), again.nanos()), (canonical, nanos), "{canonical} read again");
}

#[test]
fn quantities_parse_exactly_and_print_canonically() {
    for (text, canonical, nanos) in [
        ("0", "0", 0),
        ("0.0", "0", 0),
        ("-0", "0", 0),
        ("0Ki", "0", 0),
        ("1", "1", NANOS_PER_UNIT),
        ("+1", "1", NANOS_PER_UNIT),
        ("100m", "100m", 100_000_000),
        ("0.1", "100m", 100_000_000),
        (".5", "500m", 500_000_000),
        ("1.", "1", NANOS_PER_UNIT),
        ("1000m", "1", NANOS_PER_UNIT),
        ("1500m", "1500m", 1_500_000_000),
        ("2500", "2500", 2500 * NANOS_PER_UNIT),
        ("100000", "100k", 100_000 * NANOS_PER_UNIT),
        ("1k", "1k", 1000 * NANOS_PER_UNIT),
        ("1e3", "1e3", 1000 * NANOS_PER_UNIT),
        ("1E3", "1e3", 1000 * NANOS_PER_UNIT),
        ("12e-1", "1200e-3", 1_200_000_000),
        ("5e0", "5", 5 * NANOS_PER_UNIT),
        ("1E", "1E", 1_000_000_000_000_000_000 * NANOS_PER_UNIT),
        ("1Ki", "1Ki", 1024 * NANOS_PER_UNIT),
        ("1024Ki", "1Mi", 1_048_576 * NANOS_PER_UNIT),
        ("1.5Gi", "1536Mi", 1_610_612_736 * NANOS_PER_UNIT),
        ("0.5Gi", "512Mi", 536_870_912 * NANOS_PER_UNIT),
        ("0.5Ki", "512", 512 * NANOS_PER_UNIT),
        ("0.1Gi", "107374182400m", 107_374_182_400_000_000),
        ("0.0001Ki", "102400u", 102_400_000),
        ("-1.5Mi", "-1536Ki", -1_572_864 * NANOS_PER_UNIT),
        ("-250m", "-250m", -250_000_000),
        ("1n", "1n", 1),
        ("0.1n", "1n", 1),
        ("-0.1n", "-1n", -1),
        ("1.00000000000000000000000000001", "1000000001n", 1_000_000_001),
        ("1.0000000000000000000000000000", "1", NANOS_PER_UNIT),
        ("000000000000000000000000000000000000001", "1", NANOS_PER_UNIT),
        ("8191Pi", "8191Pi", 8191 * (1 << 50) * NANOS_PER_UNIT),
        ("3.14159265358979323846Ei", "3622009729038561421189115416n", 3_622_009_729_038_561_421_189_115_416),
    ] {
        check(text, canonical, nanos);
    }
}

#[test]
fn large_quantities_are_capped_and_small_ones_rounded_up() {
    for text in ["9223372036854775808", "1e30", "1e2147483647", "9Ei", "99999999999999999999999999999999999999999999k"]
    {
        assert_eq!(text.parse::<Quantity>().unwrap().value(), i64::MAX, "{text}");
        assert_eq!(format!("-{text}").parse::<Quantity>().unwrap().value(), -i64::MAX, "-{text}");
    }
    assert_eq!("1e-2147483648".parse::<Quantity>().unwrap().nanos(), 1);
    assert_eq!("0e2147483647".parse::<Quantity>().unwrap().nanos(), 0);
}

#[test]
fn invalid_quantities_are_refused() {
    for text in ["", "+", "-", ".", "1.2.3", "Mi", "m", "--1", "+-1", " 1", "1 ", "0x10"] {
        assert!(text.parse::<Quantity>().is_err(), "{text}");
    }
    for text in ["1e", "1e1.5", "1kk", "1mi", "1K", "1KI", "1g", "1e99999999999", "1 Mi", "1_000", "1ü"] {
        assert_eq!(text.parse::<Quantity>(), Err(QuantityError::Suffix), "{text}");
    }
}

#[test]
fn whole_and_milli_values_are_rounded_away_from_zero() {
    let quantity = |text: &str| text.parse::<Quantity>().unwrap();
    assert_eq!(quantity("1500m").value(), 2);
    assert_eq!(quantity("-1500m").value(), -2);
    assert_eq!(quantity("1n").value(), 1);
    assert_eq!(quantity("0.0001").milli_value(), 1);
    assert_eq!(quantity("1.5").milli_value(), 1500);
    assert_eq!(quantity("8Pi").milli_value(), 8 * (1 << 50) * 1000);
    assert_eq!(quantity("1E").milli_value(), i64::MAX);
}

#[test]
fn comparison_ignores_the_format() {
    let quantity = |text: &str| text.parse::<Quantity>().unwrap();
    assert_eq!(quantity("1Ki"), quantity("1024"));
    assert_eq!(quantity("1e3"), quantity("1k"));
    assert!(quantity("1M") < quantity("1Mi"));
    assert!(quantity("-1") < quantity("0"));
}

#[test]
fn sum_has_the_format_of_its_first_operand() {
    let quantity = |text: &str| text.parse::<Quantity>().unwrap();
    assert_eq!(quantity("1Gi").plus(quantity("1M")).to_string(), "1074741824");
    assert_eq!(quantity("512Mi").plus(quantity("512Mi")).to_string(), "1Gi");
    assert_eq!(Quantity::ZERO.plus(quantity("64Mi")).to_string(), "64Mi");
    assert_eq!(quantity("1").minus(quantity("250m")).to_string(), "750m");
    assert_eq!(quantity("8Ei").plus(quantity("8Ei")).value(), i64::MAX);
}
