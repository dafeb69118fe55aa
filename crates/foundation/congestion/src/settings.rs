//! A control as it is loaded: its parameters and its name.

use crate::algorithm::{Algorithm, Variant};
use crate::highspeed::{self, Row};

/// The most characters of a name in the kernel (`TCP_CA_NAME_MAX` less its zero).
pub const MOST_NAME_CHARACTERS: usize = 15;

/// Why settings are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// There is no variant with the rules of a Linux module.
    #[error("{algorithm} has no Linux variant: {}", match algorithm {
        Algorithm::Cubic => "select the kernel's own cubic",
        Algorithm::Bbr3 => "the kernel's own bbr is BBRv1",
        _ => "Linux never had such a module",
    })]
    NoLinuxVariant {
        /// Which control.
        algorithm: Algorithm,
    },
    /// There is no such parameter.
    #[error("{algorithm} has no parameter `{name}`: it has {}", names(*algorithm))]
    UnknownParameter {
        /// Which control.
        algorithm: Algorithm,
        /// What was asked for.
        name: String,
    },
    /// The text is not `NAME=VALUE`.
    #[error("`{text}` is not NAME=VALUE with a whole number")]
    NotAnAssignment {
        /// What was given.
        text: String,
    },
    /// The value is too large.
    #[error("{name} = {value}: it is at most {most}")]
    TooLarge {
        /// Of which parameter.
        name: &'static str,
        /// What was asked for.
        value: u32,
        /// What is allowed.
        most: u32,
    },
    /// The kernel does not accept the name.
    #[error("`{name}` cannot be a name in the kernel: use 1 to {MOST_NAME_CHARACTERS} of a-z, 0-9 and _")]
    BadName {
        /// What was asked for.
        name: String,
    },
    /// The curve of HighSpeed TCP needs a low and a high end.
    #[error("high_window = {high} is not above low_window = {low}, or one of the rates of loss and decrease is zero")]
    NoCurve {
        /// The low end.
        low: u32,
        /// The high end.
        high: u32,
    },
}

fn names(algorithm: Algorithm) -> String {
    algorithm.parameters().iter().map(|parameter| parameter.name).collect::<Vec<_>>().join(", ")
}

/// A control, its parameters and its name in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    algorithm: Algorithm,
    variant: Variant,
    name: String,
    values: Vec<u32>,
}

impl Settings {
    /// The settings of the variant.
    ///
    /// # Errors
    /// [`SettingsError::NoLinuxVariant`].
    pub fn new(algorithm: Algorithm, variant: Variant) -> Result<Self, SettingsError> {
        if variant == Variant::Linux && !algorithm.has_linux_variant() {
            return Err(SettingsError::NoLinuxVariant { algorithm });
        }
        let values = algorithm.parameters().iter().map(|parameter| match variant {
            Variant::Paper => parameter.paper,
            Variant::Linux => parameter.linux,
        });
        Ok(Self { algorithm, variant, name: algorithm.kernel_name(variant), values: values.collect() })
    }

    /// Changes a parameter by `NAME=VALUE`, the value as stored.
    ///
    /// # Errors
    /// Any but [`SettingsError::NoLinuxVariant`] and [`SettingsError::BadName`]; the settings are as they were.
    pub fn set(&mut self, assignment: &str) -> Result<(), SettingsError> {
        let unread = || SettingsError::NotAnAssignment { text: assignment.into() };
        let (name, value) = assignment.split_once('=').ok_or_else(unread)?;
        let parameters = self.algorithm.parameters();
        let index = parameters
            .iter()
            .position(|parameter| parameter.name == name.trim())
            .ok_or_else(|| SettingsError::UnknownParameter { algorithm: self.algorithm, name: name.trim().into() })?;
        let value = value.trim().parse().map_err(|_| unread())?;
        let parameter = &parameters[index];
        if value > parameter.most {
            return Err(SettingsError::TooLarge { name: parameter.name, value, most: parameter.most });
        }
        self.values[index] = value;
        Ok(())
    }

    /// Gives it another name in the kernel, so that several can be loaded.
    ///
    /// # Errors
    /// [`SettingsError::BadName`].
    pub fn rename(&mut self, name: &str) -> Result<(), SettingsError> {
        let fits = (1..=MOST_NAME_CHARACTERS).contains(&name.len());
        if !fits || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') {
            return Err(SettingsError::BadName { name: name.into() });
        }
        self.name = name.into();
        Ok(())
    }

    /// The control.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The variant of its parameters before any change.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// The name in the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The values, as stored, in the order of [`Algorithm::parameters`].
    pub fn values(&self) -> &[u32] {
        &self.values
    }

    /// The value of a parameter, as stored.
    pub fn value(&self, name: &str) -> Option<u32> {
        let index = self.algorithm.parameters().iter().position(|parameter| parameter.name == name)?;
        self.values.get(index).copied()
    }

    /// The table of HighSpeed TCP; empty for other controls.
    ///
    /// # Errors
    /// [`SettingsError::NoCurve`].
    pub fn table(&self) -> Result<Vec<Row>, SettingsError> {
        if self.algorithm != Algorithm::Highspeed {
            return Ok(Vec::new());
        }
        let value = |name| self.value(name).unwrap_or_default();
        let (low, high) = (value("low_window"), value("high_window"));
        let curve = highspeed::Curve::new(
            low,
            high,
            f64::from(value("high_loss_e9")) / 1e9,
            f64::from(value("high_decrease_1000")) / 1e3,
        );
        Ok(curve.ok_or(SettingsError::NoCurve { low, high })?.rows())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_set_by_name() {
        let mut settings = Settings::new(Algorithm::Scalable, Variant::Paper).unwrap();
        assert_eq!((settings.name(), settings.values()), ("lh_scalable", &[100, 128, 16, 1, 0, 0][..]));
        settings.set("low_window=100").unwrap();
        settings.rename("lh_mine").unwrap();
        assert_eq!((settings.name(), settings.value("low_window")), ("lh_mine", Some(100)));
        for wrong in
            ["low_window", "low_window=", "low_window=-1", "low_window=x", "=1", "decrease_1024=1025", "alpha=1"]
        {
            assert!(settings.set(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "sixteen_letters_", "Reno", "a b", "a/b"] {
            assert!(settings.rename(wrong).is_err(), "{wrong}");
        }
        assert_eq!(settings.value("decrease_1024"), Some(128), "what was refused changed nothing");
    }

    #[test]
    fn linux_has_its_own() {
        let linux = Settings::new(Algorithm::Bic, Variant::Linux).unwrap();
        assert_eq!((linux.name(), linux.value("keep_1024")), ("lh_bic_l", Some(819)));
        assert!(matches!(Settings::new(Algorithm::Fast, Variant::Linux), Err(SettingsError::NoLinuxVariant { .. })));
    }

    #[test]
    fn what_is_said_of_parameters_holds() {
        for algorithm in Algorithm::ALL {
            for parameter in algorithm.parameters() {
                assert!(parameter.paper <= parameter.most && parameter.linux <= parameter.most, "{}", parameter.name);
                assert!(parameter.unit > 0);
            }
        }
        let settings = Settings::new(Algorithm::Highspeed, Variant::Paper).unwrap();
        assert_eq!(settings.table().unwrap().len(), 73);
        let mut none = settings.clone();
        none.set("high_window=38").unwrap();
        assert!(matches!(none.table(), Err(SettingsError::NoCurve { low: 38, high: 38 })));
    }
}
